"""Reads what AOTAutograd found out about inputs and outputs: the text artifact `aot_forward_graph_fw_metadata`.

The text is a printed dataclass (`ViewAndMutationMeta`, torch/_functorch/_aot_autograd/schemas.py, 2.11 and 2.15); it is searched by
patterns and never evaluated. A field that this torch does not print is False.
"""

from __future__ import annotations

import functools
import re

from dynadiag.model.mutations import AotInput, AotMetadata, AotOutput

_INPUT = re.compile(r"InputAliasInfo\(([^()]{0,4000})\)")
_OUTPUT = re.compile(r"OutputAliasInfo\(output_type=<OutputType\.(\w{1,60}): \d{1,4}>.{0,2000}?base_idx=(None|\d{1,9})", re.DOTALL)
_NUMBERS = re.compile(r"[\d,\s]*")
_MUTATED = ("mutates_data=True", "mutates_metadata=True", "storage_resize=True")
_FLAG = re.compile(r"(\w{1,80})=(True|False)")


def read_aot_metadata(text: str) -> AotMetadata | None:
    """The metadata in one payload, or None when it is of no form that we know.

    Of a graph that mutates no input only the number of inputs is read: that is most graphs, and the text of a big one is long.
    """
    if not text.lstrip().startswith("ViewAndMutationMeta("):
        return None
    head, _, rest = text.partition("output_info=[")
    if not any(words in head for words in _MUTATED):
        inputs = (AotInput(),) * head.count("InputAliasInfo(")
    else:
        inputs = tuple(_input(match[1]) for match in _INPUT.finditer(head))
    outputs = tuple(_output(match) for match in _OUTPUT.finditer(rest))
    static, keeps = _behind(rest, "static_input_indices=["), _behind(rest, "keep_input_mutations=")
    return AotMetadata(
        inputs=inputs,
        outputs=outputs,
        static=_numbers(static) if static else None,
        keeps_mutations=keeps.startswith("True") if keeps.startswith(("True", "False")) else None,
        intermediate_bases=max(_numbers(_behind(rest, "num_intermediate_bases=")), default=0),
    )


def _numbers(text: str) -> frozenset[int]:
    """The numbers that a text begins with, separated by commas."""
    found = _NUMBERS.match(text)
    parts = found[0].split(",") if found else []
    return frozenset(int(part) for part in parts if part.strip().isdecimal() and len(part.strip()) < 10)


def _behind(text: str, name: str) -> str:
    """What follows the first `name` in the text, at most 100,000 characters; empty when it is not there. Faster than a pattern."""
    at = text.find(name)
    return text[at + len(name) : at + len(name) + 100_000] if at >= 0 else ""


@functools.lru_cache(maxsize=256)  # the inputs of a graph differ in few ways
def _input(text: str) -> AotInput:
    flags = {match[1]: match[2] == "True" for match in _FLAG.finditer(text)}

    def flag(name: str) -> bool:
        return flags.get(name, False)

    return AotInput(
        is_leaf=flag("is_leaf"),
        requires_grad=flag("requires_grad"),
        mutates_data=flag("mutates_data"),
        mutates_metadata=flag("mutates_metadata"),
        replaces_storage=flag("mutates_storage_metadata") or flag("mutation_is_shallow_copy_data"),
        resizes_storage=flag("mutation_inductor_storage_resize"),
        hidden_from_autograd=flag("mutations_hidden_from_autograd"),
        under_no_grad=flag("mutations_under_no_grad_or_inference_mode"),
        keep_input_mutations=flag("keep_input_mutations"),
    )


def _output(match: re.Match[str]) -> AotOutput:
    return AotOutput(kind=match[1], base=None if match[2] == "None" else int(match[2]))
