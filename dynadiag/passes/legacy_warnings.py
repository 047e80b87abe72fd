"""What the warnings of 2022 meant: text logs of torchdynamo and functorch, when AOTAutograd could not take every graph.

The behaviour is that of `torch/_dynamo/optimizations/training.py` (`is_aot_autograd_safe_to_run`, `AotAutogradStrategy`) in torch 1.13.
"""

from __future__ import annotations

from typing import Final

_MUTATION: Final = (
    "torchdynamo of 2022 looked through each captured graph before it gave it to AOTAutograd. This one mutates a tensor in place, which "
    "AOTAutograd could not "
    "represent then (without functionalization any mutation, with it one of an input), so the whole captured graph ran eager, not only "
    "the op. On current "
    "torch the same code is functionalized and compiled; the new value is copied back after the graph"
)
_LSTM: Final = (
    "torchdynamo of 2022 refused graphs that hold an LSTM module, because of an open fault (pytorch/functorch#586), and ran them eager. "
    "Current torch leaves LSTM, GRU and RNN modules out of its graphs unless torch._dynamo.config.allow_rnn is set, which is a graph "
    "break, not this fallback"
)
_UNSAFE: Final = (
    "torchdynamo of 2022 had found the captured graph unsafe for AOTAutograd (a mutation in it, or an LSTM module) and ran the whole "
    "graph eager, forward and "
    "backward. On current torch graphs with mutations are functionalized and compiled"
)
_OTHER: Final = "a warning of torch's compiler in a text log of 2022, by which a captured graph ran eager"


def legacy_meaning(text: str) -> str:
    """What a warning of 2022 meant, what forced it then, and what becomes of the same code on current torch."""
    lower = text.lower()
    if "presence of mutation" in lower or "has mutation" in lower:
        return _MUTATION
    if "presence of lstm" in lower:
        return _LSTM
    return _UNSAFE if "not safe to run" in lower else _OTHER
