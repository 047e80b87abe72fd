"""Hand-made runs and mutations for the tests of the mutation pass and its renderers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynadiag import trace
from dynadiag.model.report import Mutation
from dynadiag.model.run import Run

SCRIPT = "/home/me/train.py"
INPUT = """InputAliasInfo(is_leaf=True, mutates_data={data}, mutates_metadata={metadata}, mutations_hidden_from_autograd={hidden},
 mutations_under_no_grad_or_inference_mode={no_grad}, mutation_inductor_storage_resize=False, mutates_storage_metadata={storage},
 requires_grad={grad}, keep_input_mutations={keep})"""


def metadata(*inputs: Mapping[str, bool], static: Sequence[int] = (), keep: bool = True) -> str:
    """An `aot_forward_graph_fw_metadata` text; each input is named by what differs from an untouched one."""
    plain = {"data": False, "metadata": False, "hidden": False, "no_grad": False, "storage": False, "grad": False, "keep": keep}
    texts = ",\n".join(INPUT.format(**(plain | dict(one))) for one in inputs)
    return (
        f"ViewAndMutationMeta(input_info=[{texts}],\n output_info=[],\n num_intermediate_bases=0,\n keep_input_mutations={keep},\n"
        f" traced_tangents=[],\n static_input_indices={list(static)},\n tokens={{}})"
    )


class LogBuilder:
    """Writes a small log in torch's trace format: one frame `fn` of `/home/me/train.py` unless told otherwise."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._offsets: list[int] = []
        self.strings: dict[str, int] = {}

    def _write(self, header: Mapping[str, Any], payload: str | None = None) -> LogBuilder:
        full = dict(header)
        if payload is not None:
            full["has_payload"] = hashlib.md5(payload.encode(), usedforsecurity=False).hexdigest()
        text = f"V1121 09:00:00.{len(self._lines):06d} 77 torch/x.py:1] {json.dumps(full)}\n"
        self._offsets.append(len("".join(self._lines)) + len(text))
        self._lines.append(text + ("" if payload is None else "\t" + payload.replace("\n", "\n\t") + "\n"))
        return self

    def start(self, frame: int = 0, name: str = "fn", line: int = 5, again: int = 0) -> LogBuilder:
        """A frame begins."""
        if SCRIPT not in self.strings:
            self.strings[SCRIPT] = 0
            self._write({"str": [SCRIPT, 0]})
        stack = [{"line": 30, "name": "<module>", "filename": 0, "loc": "fn(x)"}, {"line": line, "name": name, "filename": 0}]
        return self._write({"dynamo_start": {"stack": stack}, **self.ids(frame, again)})

    @staticmethod
    def ids(frame: int = 0, again: int = 0) -> dict[str, int]:
        """The compile context of a record."""
        return {"frame_id": frame, "frame_compile_id": again, "attempt": 0}

    def graph(self, signature: str, *body: str, frame: int = 0, again: int = 0) -> LogBuilder:
        """A Dynamo graph: its signature and the lines of its body."""
        lines = "".join(f"        {line}\n" for line in body)
        text = f"class GraphModule(torch.nn.Module):\n    def forward(self, {signature}):\n{lines}"
        return self._write({"dynamo_output_graph": {}, **self.ids(frame, again)}, text)

    def artifact(self, name: str, payload: Any, frame: int | None = 0, again: int = 0) -> LogBuilder:
        """An artifact, as text or as JSON."""
        text = payload if isinstance(payload, str) else json.dumps(payload)
        return self._write({"artifact": {"name": name, "encoding": "string"}, **({} if frame is None else self.ids(frame, again))}, text)

    def tensor(self, source: str, frame: int = 0, again: int = 0, **facts: Any) -> LogBuilder:
        """A tensor that Dynamo met."""
        number = len(self._lines)
        described = {"id": number, "describer_id": 0, "dtype": "torch.float32", "size": [4], "storage": number, **facts}
        self._write({"describe_tensor": described, **self.ids(frame, again)})
        return self._write({"describe_source": {"describer_id": 0, "id": number, "source": source}, **self.ids(frame, again)})

    def metrics(self, frame: int = 0, again: int = 0, **values: Any) -> LogBuilder:
        """The end of a frame."""
        full = {"co_name": "fn", "co_filename": SCRIPT, "co_firstlineno": 5, "has_guarded_code": True, "fail_type": None, **values}
        return self._write({"compilation_metrics": full, **self.ids(frame, again)})

    def post_grad(self, signature: str, *body: str, frame: int = 0) -> LogBuilder:
        """Inductor's graph before code generation."""
        lines = "".join(f"        {line}\n" for line in body)
        text = f"class <lambda>(torch.nn.Module):\n    def forward(self, {signature}):\n{lines}"
        return self._write({"inductor_post_grad_graph": {}, **self.ids(frame)}, text)

    def probe(self, *mutations: Mapping[str, Any], **facts: Any) -> LogBuilder:
        """What the probe found in the graph that was written last."""
        position = max(number for number, line in enumerate(self._lines) if '"dynamo_output_graph"' in line)
        content = {
            "format": 1,
            "text_offset": self._offsets[position],
            "runnable": True,
            "mutations": list(mutations),
            "error": None,
            **facts,
        }
        return self.artifact("dynadiag_probe", content, frame=None)

    def load(self, folder: Path) -> Run:
        """The run that the log makes."""
        log = folder / "dedicated_log_torch_trace_1.log"
        log.write_text("".join(self._lines))
        return trace.load(log)


def write(line: int, code: str, op: str = "aten.add_.Tensor", **facts: Any) -> dict[str, Any]:
    """One writing op as the probe records it."""
    return {"op": op, "stack": [[SCRIPT, line, "fn", code]], "bytes_touched": 16, "no_grad": False, "kind": "data", **facts}


def probed(index: int, source: str, *sites: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    """One mutated input as the probe records it."""
    plain = {
        "index": index,
        "name": f"l_{index}_",
        "source": source,
        "kinds": ["data"],
        "where": "in_graph",
        "no_grad": False,
        "bytes_touched": 16,
    }
    return {**plain, "sites": list(sites), **facts}


def mutation(number: int = 0, **facts: Any) -> Mutation:
    """A mutation of a report."""
    plain: dict[str, Any] = {
        "id": f"m{number}",
        "fingerprint": f"fp{number}",
        "code": "DM02",
        "frame": "f0",
        "input": "L['x']",
        "kind": "data",
        "effects": ({"kind": "cudagraph_skip", "basis": "predicted", "detail": "it has no fixed address"},),
        "bytes_touched": 16,
        "bytes_written_back": 0,
        "no_grad": False,
        "static": False,
        "aliases": (),
        "sites": (
            {"file": SCRIPT, "line": 7, "code": "x.add_(1)", "function": "fn", "op": "aten.add_.Tensor", "own": True, "library": None},
        ),
    }
    return Mutation(**(plain | facts))
