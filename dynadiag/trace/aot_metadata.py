"""Reads what AOTAutograd found out about inputs and outputs: the text artifact `aot_forward_graph_fw_metadata`.

The text is a printed dataclass (`ViewAndMutationMeta`, torch/_functorch/_aot_autograd/schemas.py, 2.11 and 2.15); it is searched by
patterns and never evaluated. A field that this torch does not print is False.
"""

from __future__ import annotations

import re

from dynadiag.model.mutations import AotInput, AotMetadata, AotOutput

_INPUT = re.compile(r"InputAliasInfo\(([^()]{0,4000})\)")
_MUTATED = re.compile(r"mutates_data=True|mutates_metadata=True|storage_resize=True")
_FLAG = re.compile(r"(\w{1,80})=(True|False)")
_OUTPUT = re.compile(r"OutputAliasInfo\(output_type=<OutputType\.(\w{1,60}): \d{1,4}>(.*?)base_idx=(None|\d{1,9})", re.DOTALL)
_STATIC = re.compile(r"\bstatic_input_indices=\[([\d,\s]*)\]")
_KEEPS = re.compile(r"\n *keep_input_mutations=(True|False),\s*traced_tangents=")
_BASES = re.compile(r"\bnum_intermediate_bases=(\d{1,9})")


def read_aot_metadata(text: str) -> AotMetadata | None:
    """The metadata in one payload, or None when it is of no form that we know.

    Of a graph that mutates no input only the number of inputs is read: that is most graphs, and the text of a big one is long.
    """
    if not text.lstrip().startswith("ViewAndMutationMeta("):
        return None
    head, _, rest = text.partition("output_info=[")
    if _MUTATED.search(head) is None:
        inputs = (AotInput(),) * head.count("InputAliasInfo(")
    else:
        inputs = tuple(_input(match[1]) for match in _INPUT.finditer(head))
    outputs = tuple(_output(match) for match in _OUTPUT.finditer(rest))
    static, keeps, bases = _STATIC.search(text), _KEEPS.search(text), _BASES.search(text)
    return AotMetadata(
        inputs=inputs,
        outputs=outputs,
        static=None if static is None else frozenset(int(number) for number in static[1].split(",") if number.strip()),
        keeps_mutations=None if keeps is None else keeps[1] == "True",
        intermediate_bases=0 if bases is None else int(bases[1]),
    )


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
    return AotOutput(kind=match[1], base=None if match[3] == "None" else int(match[3]))
