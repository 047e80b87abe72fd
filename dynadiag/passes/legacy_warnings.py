"""What the warnings of 2022 meant: text logs of torchdynamo and functorch, when AOTAutograd could not take every graph.

The behaviour is that of `torch/_dynamo/optimizations/training.py` (`is_aot_autograd_safe_to_run`, `AotAutogradStrategy`) in torch 1.13.
"""

from __future__ import annotations

from typing import Final

_MUTATION: Final = (
    "In 2022, torchdynamo inspected each captured graph before passing it to AOTAutograd. This one mutates a tensor in place, which "
    "AOTAutograd could not represent at the time (without functionalization any mutation, with it one of an input), so the whole "
    "captured graph ran eagerly, not only the op. With current torch, the same code is functionalized and compiled; the new value is "
    "copied back after the graph"
)
_LSTM: Final = (
    "In 2022, torchdynamo refused graphs that contain an LSTM module, because of an open bug (pytorch/functorch#586), and ran them "
    "eagerly. Current torch leaves LSTM, GRU and RNN modules out of its graphs unless torch._dynamo.config.allow_rnn is set, which is "
    "a graph "
    "break, not this fallback"
)
_UNSAFE: Final = (
    "In 2022, torchdynamo considered the captured graph unsafe for AOTAutograd (a mutation in it, or an LSTM module) and ran the whole "
    "graph eagerly, forward and backward. With current torch, graphs with mutations are functionalized and compiled"
)
_OTHER: Final = "a warning of torch's compiler in a text log of 2022: a captured graph ran eagerly"


def legacy_meaning(text: str) -> str:
    """What a warning of 2022 meant, what forced it then, and what becomes of the same code on current torch."""
    lower = text.lower()
    if "presence of mutation" in lower or "has mutation" in lower:
        return _MUTATION
    if "presence of lstm" in lower:
        return _LSTM
    return _UNSAFE if "not safe to run" in lower else _OTHER
