"""Reading what torch and the probe recorded of mutations."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag import trace
from dynadiag.trace.payloads import read_aot_metadata, read_probe, read_side_effects

AOT = """ViewAndMutationMeta(input_info=[InputAliasInfo(is_leaf=True,
                                              mutates_data=True,
                                              mutates_metadata=False,
                                              mutations_hidden_from_autograd=False,
                                              mutations_under_no_grad_or_inference_mode=False,
                                              mutation_inductor_storage_resize=False,
                                              mutates_storage_metadata=False,
                                              requires_grad=True,
                                              keep_input_mutations=True),
                               InputAliasInfo(is_leaf=True,
                                              mutates_data=False,
                                              mutates_metadata=False,
                                              requires_grad=False,
                                              keep_input_mutations=True)],
                    output_info=[OutputAliasInfo(output_type=<OutputType.alias_of_input: 2>,
                                                raw_type=<class 'x'>,
                                                base_idx=0,
                                                dynamic_dims=set())],
                    num_intermediate_bases=3,
                    keep_input_mutations=True,
                    traced_tangents=[],
                    static_input_indices=[1],
                    tokens={})"""

SIDE = """Mutating object of type M (source name: L['self'])

      File "/p/train.py", line 14, in <module>
        f(x)
      File "/p/model.py", line 7, in forward
        self.n += 1
        ^^^^^^^^^^^
    ********

      File "/p/model.py", line 9, in forward
        self.n = 0


========================================

Mutating object of type cell (source: count)

      File "/p/model.py", line 8, in inner
        count += 1


========================================

Mutating object of type list (source: created in torch.compile region) (unable to find user stacks for mutations)
"""


def record(name: str, payload: str, encoding: str = "string", **ids: Any) -> str:
    """One artifact in torch's trace format."""
    digest = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
    header = {"artifact": {"name": name, "encoding": encoding}, **ids, "has_payload": digest}
    return header_line(header) + "\t" + payload.replace("\n", "\n\t") + "\n"


def header_line(header: dict[str, Any]) -> str:
    """One header line of a trace."""
    return f"V1121 09:00:00.000000 77 torch/x.py:1] {json.dumps(header)}\n"


def test_aot_metadata_tells_kinds_and_who_writes_back() -> None:
    found = read_aot_metadata(AOT)
    assert found is not None
    assert [one.is_mutated for one in found.inputs] == [True, False]
    assert not found.inputs[0].in_graph
    assert (found.static, found.keeps_mutations, found.intermediate_bases) == (frozenset({1}), True, 3)
    assert (found.outputs[0].kind, found.outputs[0].base) == ("alias_of_input", 0)


def test_a_write_under_no_grad_stays_in_the_graph() -> None:
    found = read_aot_metadata(
        AOT.replace("mutations_under_no_grad_or_inference_mode=False", "mutations_under_no_grad_or_inference_mode=True")
    )
    assert found is not None and found.inputs[0].in_graph


def test_a_back_end_that_keeps_no_mutations_gets_an_epilogue() -> None:
    found = read_aot_metadata(
        AOT.replace("keep_input_mutations=True", "keep_input_mutations=False").replace("requires_grad=True", "requires_grad=False")
    )
    assert found is not None and found.keeps_mutations is False
    assert found.inputs[0].is_mutated and not found.inputs[0].in_graph


@pytest.mark.parametrize("text", ["", "ViewAndMutation", "class GraphModule: ..."])
def test_other_text_is_no_metadata(text: str) -> None:
    assert read_aot_metadata(text) is None


def test_side_effects_have_objects_and_every_stack() -> None:
    module, cell, made = read_side_effects(SIDE)
    assert (module.type, module.source) == ("M", "L['self']")
    assert [(stack[-1].line, stack[-1].code) for stack in module.stacks] == [(7, "self.n += 1"), (9, "self.n = 0")]
    assert (cell.source, cell.variable, cell.stacks[0][-1].line) == (None, "count", 8)
    assert (made.source, made.variable, made.stacks) == (None, None, ())


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    read_side_effects(text)
    read_side_effects(f"Mutating object of type {text} (source name: {text})\n{text}")
    read_aot_metadata(f"ViewAndMutationMeta({text}")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(st.dictionaries(st.sampled_from(["mutations", "error", "notes"]), JSON_VALUES | st.lists(st.dictionaries(st.text(), JSON_VALUES))))
def test_any_probe_record_is_read_without_an_error(values: dict[str, Any]) -> None:
    read_probe(values)


GRAPH = 'class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: "f32[4]"):\n        add = L_x_.add_(1)\n        return (add,)\n'


def graph_log(extra: str = "") -> str:
    """A log with one frame, one Dynamo graph and what else is given."""
    ids = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    digest = hashlib.md5(GRAPH.encode(), usedforsecurity=False).hexdigest()
    return (
        header_line(
            {
                "describe_tensor": {
                    "id": 3,
                    "describer_id": 0,
                    "ndim": 1,
                    "dtype": "torch.float32",
                    "size": [4],
                    "stride": [1],
                    "storage": 0,
                },
                **ids,
            }
        )
        + header_line({"describe_source": {"describer_id": 0, "id": 3, "source": "L['x']"}, **ids})
        + header_line({"dynamo_output_graph": {}, **ids, "has_payload": digest})
        + "\t"
        + GRAPH.replace("\n", "\n\t")
        + "\n"
        + record("aot_forward_graph_fw_metadata", AOT, **ids)
        + record("dynamo_side_effects", SIDE, **ids)
        + extra
    )


def test_a_log_gives_inputs_metadata_and_side_effects(tmp_path: Path) -> None:
    log = tmp_path / "dedicated_log_torch_trace_1.log"
    log.write_text(graph_log())
    run = trace.load(log)
    assert [(one.source, one.shape, one.dtype, one.requires_grad) for one in run.traced_inputs] == [
        ("L['x']", (4,), "torch.float32", False)
    ]
    by_kind = {one.kind: one for one in run.mutation_records}
    assert trace.aot_metadata(by_kind["aot_metadata"].payload) == read_aot_metadata(AOT)
    assert len(trace.side_effects(by_kind["side_effects"].payload)) == 3


def test_a_probe_record_finds_its_graph_by_where_the_text_lies(tmp_path: Path) -> None:
    log = tmp_path / "dedicated_log_torch_trace_1.log"
    log.write_text(graph_log())
    offset = trace.load(log).graphs[0].text.offset  # type: ignore[union-attr]
    mutation = {
        "index": 0,
        "name": "l_x_",
        "source": "L['x']",
        "kinds": ["data"],
        "where": "in_graph",
        "sites": [{"op": "aten.add_.Tensor", "stack": [["/p/m.py", 3, "f", "x.add_(1)"]]}],
    }
    content = {
        "format": 1,
        "graph": "g9",
        "text_offset": offset,
        "runnable": True,
        "why_not": None,
        "mutations": [mutation],
        "error": None,
        "notes": [],
    }
    log.write_text(
        graph_log(record("dynadiag_probe", '{"text_offset": 1}', "json") + record("dynadiag_probe", json.dumps(content), "json"))
    )
    run = trace.load(log)
    graph = run.graphs[0]
    assert graph.runnable is True and graph.probe is not None
    probed = trace.probe_result(graph.probe)
    assert probed is not None and probed.mutations is not None
    assert (probed.mutations[0].source, probed.mutations[0].sites[0].stack[-1].line) == ("L['x']", 3)
    assert run.processes[0].skipped == {"probe of an unknown graph": 1}
