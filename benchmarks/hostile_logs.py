"""How much memory and CPU time logs need that were made to cost much: `dynadiag explain` on each, in a process of its own.

    python benchmarks/hostile_logs.py --mb 100 [--only NAME ...] [--formats text json md]

Every attack is one log (or a folder of logs) that a stranger could mail. Printed are the size, CPU seconds (user and system, with
children) and the peak of resident memory of each, and how many times that is what `json.loads` needs for as many bytes of records, timed
next to it: on a machine with other work both grow. `--tlparse` reads each trace with tlparse too. Exit status 1 when one needs more than
300 MB, or more than 10 CPU seconds for 100 MB of log (10 seconds for a smaller one).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

WANTED_MB = 300.0
WANTED_S = 10.0
LONGEST_S = 120
FORMS = {"text": [], "full": ["--full"], **{name: ["--format", name] for name in ("json", "md", "html")}}
_HEAD = b"V0101 10:00:00.000000 "
_PLACE = b" torch/_dynamo/convert_frame.py:1] "
Attack = Callable[[], Iterator[bytes]]


def record(header: dict[str, object], payload: str | bytes = b"", *, pid: int = 77) -> bytes:
    """One record of torch's trace."""
    data = payload.encode() if isinstance(payload, str) else payload
    line = _HEAD + str(pid).encode() + _PLACE + json.dumps(header).encode() + b"\n"
    return line + (b"\t" + data.replace(b"\n", b"\n\t") + b"\n" if data else b"")


def _context(frame: int, again: int = 0, attempt: int = 0) -> dict[str, object]:
    return {"rank": 0, "frame_id": frame, "frame_compile_id": again, "attempt": attempt}


def artifact(name: str, payload: object, frame: int = 0, again: int = 0, *, pid: int = 77) -> bytes:
    """An artifact record, its payload a text or JSON."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    return record({"artifact": {"name": name, "encoding": "string"}, **_context(frame, again), "has_payload": digest}, text, pid=pid)


def start(frame: int, again: int = 0, *, name: str = "forward", line: int = 3, pid: int = 77) -> bytes:
    """A frame that begins, in file number 1 of the intern table."""
    stack = [{"line": line, "name": name, "filename": 1, "loc": "y = model(x)"}]
    return record({"dynamo_start": {"stack": stack}, **_context(frame, again)}, pid=pid)


def _numbered(one: Callable[[int], bytes], first: bytes = b"") -> Attack:
    def pieces() -> Iterator[bytes]:
        yield first or record({"str": ["/home/u/train.py", 1]})
        number = 0
        while True:
            yield b"".join(one(number + step) for step in range(64))
            number += 64

    return pieces


def _repeated(text: bytes, first: bytes = b"", last: bytes = b"") -> Attack:
    """The same text over and over."""

    def pieces() -> Iterator[bytes]:
        yield first
        block = text * max(1, 65536 // len(text))
        while True:
            yield block

    del last
    return pieces


_BREAK = (
    "Graph break in user code at /home/u/train.py:{0}\nGraph Break Reason: Call to `torch._dynamo.graph_break()`\n"
    "  Explanation: User-inserted graph break {0}.\n  Hint: Remove the call.\n\n  Developer debug context: Called with `{0}`\n\n"
    " For more details about this graph break, please visit: https://x/gb/gb0025.html\n"
    'User code traceback:\n  File "/home/u/train.py", line {0}, in forward\n    torch._dynamo.graph_break()\n'
)
_GUARD = "+- RootGuardManager\n| +- DICT_LENGTH: len(L['self'].a{0}) == 3  # y = x (train.py:{0} in forward)\n"


def _metrics(number: int, **more: object) -> bytes:
    values = {"compile_id": f"{number}/0", "co_name": f"f{number}", "co_filename": "t.py", "co_firstlineno": 3, "guard_count": 3, **more}
    return record({"compilation_metrics": values, **_context(number)})


def _graph_text(nodes: int) -> str:
    lines = [f'        a{n + 1}: "f32[4]" = a{n} + {n};  a{n} = None' for n in range(nodes)]
    return (
        'class GraphModule(torch.nn.Module):\n    def forward(self, a0: "f32[4]"):\n' + "\n".join(lines) + f"\n        return (a{nodes},)\n"
    )


def _once(build: Callable[[int], bytes]) -> Attack:
    """One record that fills the log: `build` is told the bytes."""

    def pieces() -> Iterator[bytes]:
        yield build(_SIZE[0])

    return pieces


_SIZE = [0]
_NEWLINE_STORM = b"\n"


def _recompile(number: int) -> bytes:
    reason = f"0/{number}: L['self'].n == {number}  # y = x * self.n  # train.py:4 in forward"
    reasons = json.dumps([reason, f"0/{max(0, number - 1)}: L['self'].n == {number - 1}  # y = x * self.n  # train.py:4 in forward"])
    return (
        start(0, number)
        + artifact("recompile_reasons", reasons, 0, number + 1)
        + record({"dynamo_cpp_guards_str": {}, **_context(0, number), "has_payload": None}, _GUARD.format(number))
    )


def _mutations(number: int) -> bytes:
    text = _graph_text(3)
    log_text = record({"dynamo_output_graph": {"sizes": {}}, **_context(number), "has_payload": None}, text)
    return start(number) + log_text


def failure(frame: int, kind: str, text: str, **more: object) -> bytes:
    """A frame that began and failed, as its metrics tell it."""
    return start(frame, name=f"f{frame}", line=frame) + _metrics(frame, fail_type=kind, fail_reason=text, **more)


def problem(kind: str, text: str, frame: int, line: int) -> bytes:
    """A problem that the recorder saw."""
    stack = [{"file": "/home/u/train.py", "line": line, "function": f"f{frame}", "code": "y = model(x)"}]
    return artifact("dynadiag_problem", {"kind": kind, "text": text, "stack": stack}, frame)


def side_effects(name: str) -> str:
    """Torch's text of a list that was appended to."""
    return (
        f"Mutating object of type list (source name: L['self'].{name})\n"
        f'  File "/home/u/train.py", line 3, in forward\n    self.{name}.append(1)\n'
    )


_KINDS = ("cudagraph_skip", "env_disabled", "no_graph", "aot_rejected", "backend_error", "stance", "no_cost", "backward_error", "uncaught")


def _mixed(number: int) -> bytes:
    """A bit of everything that can go wrong, so that what passes look up for each is looked up among many."""
    a, b, c, d, e = (number * 5 + step for step in range(5))
    written = {
        "id": number, "describer_id": 0, "ndim": 1, "dtype": "torch.float32", "device": "device(type='cpu')", "size": [3], "stride": [1],
        "storage": number,
    }  # fmt: skip
    reasons = json.dumps([f"{e}/0: len(L['self'].x{number}) == {number}  # y = self.x  # train.py:4 in f{e}"])
    regions = [{"calls": 3, "region_us": 1.0, "between_us": 2.0, "lookup_us": 1.0, "region": "r", "frame_id": a, "frame_compile_id": 0}]
    mutated = 'mutated inputs (1 instances). Found from: \n  File "/home/u/train.py", line 3, in forward\n    y = model(x)\n'
    return b"".join(
        (
            start(a, name=f"f{a}", line=a),
            artifact("dynamo_graph_break_reason", _BREAK.format(a), a),
            start(b, name=f"torch_dynamo_resume_in_f_at_{a % 40}", line=9),
            _metrics(b),
            failure(c, "InternalTorchDynamoError", f"RuntimeError: no {number}"),
            failure(d, "RecompileLimitExceeded", "recompile limit exceeded", config_suppress_errors=True),
            start(e, name="forward", line=e % 7),
            record({"describe_tensor": written, **_context(e)}),
            record({"describe_source": {"describer_id": 0, "id": number, "source": f"L['x{number}']"}, **_context(e)}),
            record({"dynamo_output_graph": {"sizes": {}}, **_context(e), "has_payload": None}, _written_graph(number)),
            artifact("aot_forward_graph_fw_metadata", _METADATA, e),
            artifact("dynamo_side_effects", side_effects(f"x{number}"), e),
            artifact("recompile_reasons", reasons, e, 1),
            start(e, 1, name="forward", line=e % 7),
            record({"dynamo_cpp_guards_str": {}, **_context(e), "has_payload": None}, _GUARD.format(number)),
            artifact("dynadiag_cost", {"how": "x", "regions": regions}),
            artifact("dynadiag_compile_call", {"target": f"t{number}", "mode": "reduce-overhead", "stack": []}),
            *(problem(kind, f"{mutated if kind == 'cudagraph_skip' and number % 2 else kind} {number}", c, number) for kind in _KINDS),
        )
    )


_METADATA = (
    "ViewAndMutationMeta(input_info=[InputAliasInfo(is_leaf=True, mutates_data=True, mutates_metadata=False, requires_grad=False)], "
    "output_info=[], num_intermediate_bases=0, keep_input_mutations=True)"
)


def _written_graph(number: int) -> str:
    """A graph that writes its input in place."""
    return (
        f'class GraphModule(torch.nn.Module):\n    def forward(self, L_x{number}_: "f32[3]"):\n        l_x{number}_ = L_x{number}_\n'
        f"         # File: /home/u/train.py:{number} in forward, code: x{number}.add_(1)\n"
        f'        add_: "f32[3]" = l_x{number}_.add_(1);  l_x{number}_ = None\n        return (add_,)\n'
    )


ATTACKS: dict[str, Attack] = {
    "mixed": _numbered(_mixed),
    "fallbacks": _numbered(lambda n: failure(n, "RuntimeError", f"no kernel for {n}", config_suppress_errors=True, has_guarded_code=False)),
    "failures": _numbered(lambda n: failure(n, "InternalTorchDynamoError", f"TypeError: no {n}")),
    "uncaught": _numbered(lambda n: failure(n, "E", f"RuntimeError: no {n}") + problem("uncaught", f"RuntimeError: no {n}", n, n)),
    "cudagraph_skips": _numbered(lambda n: start(n, name=f"f{n}", line=n) + problem("cudagraph_skip", f"cpu device (arg{n}_1)", n, n)),
    "mutations": _numbered(
        lambda n: (
            start(n, name=f"f{n}", line=n)
            + record({"dynamo_output_graph": {"sizes": {}}, **_context(n), "has_payload": None}, _written_graph(n))
            + artifact("aot_forward_graph_fw_metadata", _METADATA, n)
        )
    ),
    "side_effects_frames": _numbered(lambda n: start(n, name=f"f{n}", line=n) + artifact("dynamo_side_effects", side_effects(f"x{n}"), n)),
    "break_resumes": _numbered(
        lambda n: (
            start(2 * n, name="f", line=3)
            + artifact("dynamo_graph_break_reason", _BREAK.format(7).replace("forward", "f"), 2 * n)
            + start(2 * n + 1, name="torch_dynamo_resume_in_f_at_7", line=3)
        )
    ),
    "recompile_sources": _numbered(
        lambda n: (
            start(0, n)
            + artifact("recompile_reasons", f"0/{n}: L['self'].n{n} == {n}  # y = x * self.n{n}  # train.py:4 in forward", 0, n + 1)
        )
    ),
    "starts": _numbered(lambda n: start(n)),
    "starts_names": _numbered(lambda n: start(n, name=f"f{n}", line=n)),
    "pids": _numbered(lambda n: start(0, pid=n + 1)),
    "pids_records": _numbered(lambda n: record({"x": 1}, pid=n % 4_000_000 + 1)),
    "newlines": _repeated(b"\n"),
    "newlines_in_trace": _repeated(b"\n", start(0)),
    "newlines_in_text": _repeated(b"\n", b"Graph break in user code at a.py:3\nGraph Break Reason: x\n"),
    "short_lines": _repeated(b"a\n"),
    "short_rank_lines": _repeated(b"1: a\n"),
    "short_lines_in_text": _repeated(b"a\n", b"Graph break in user code at a.py:3\nGraph Break Reason: x\n"),
    "short_lines_in_trace": _repeated(b"a\n", start(0)),
    "tab_lines": _repeated(b"\t\n", start(0)),
    "tiny_records": _repeated(b'V0101 10:00:00 1] {"a":1}\nV0101 10:00:00 1] {"b":1}\n'),
    "unknown_kinds": _numbered(lambda n: record({f"kind{n}": 1})),
    "unknown_artifacts": _numbered(lambda n: artifact(f"thing{n}", "")),
    "recompiles": _numbered(_recompile),
    "resets": _numbered(lambda n: artifact("dynadiag_reset", {"epoch": n}) + start(0, name=f"f{n}")),
    "epochs": _numbered(lambda n: start(0, name=f"f{n}")),
    "attempts": _numbered(lambda n: record({"dynamo_start": {"stack": []}, **_context(n, 0, 9999)})),
    "interned": _numbered(lambda n: record({"str": [f"/home/u/a/long/path/of/file_number_{n}.py", n]})),
    "interned_huge": _numbered(lambda n: record({"str": ["x" * 100_000, 10**17 + n]})),
    "break_sites": _numbered(lambda n: start(n) + artifact("dynamo_graph_break_reason", _BREAK.format(n), n)),
    "break_events": _numbered(lambda n: artifact("dynamo_graph_break_reason", _BREAK.format(7), 0)),
    "break_huge": _numbered(lambda n: artifact("dynamo_graph_break_reason", _BREAK.format(n) + f"x{n} " * 20_000, n)),
    "errors": _numbered(lambda n: artifact("dynamo_error", f'Traceback (most recent call last):\n  File "a", line 1\nE: {n}', n)),
    "metrics": _numbered(_metrics),
    "metrics_huge": _numbered(
        lambda n: _metrics(n, fail_type="Unsupported", fail_reason=f"{n} " * 20_000, restart_reasons=[f"r{n}"] * 100)
    ),
    "metrics_limit": _numbered(lambda n: _metrics(n, fail_type="RecompileLimitExceeded", fail_reason=f"x{n}")),
    "metrics_one": _numbered(lambda n: record({"compilation_metrics": {"compile_id": "0/0", "restart_reasons": [f"r{n}"]}, **_context(0)})),
    "stacks": _numbered(
        lambda n: record(
            {
                "dynamo_start": {
                    "stack": [{"line": n * 400 + k, "name": f"f{n}_{k}", "filename": 1, "loc": f"y{n}_{k}()"} for k in range(400)]
                },
                **_context(n),
            }
        )
    ),
    "guards": _numbered(lambda n: record({"dynamo_cpp_guards_str": {}, **_context(n), "has_payload": None}, _GUARD.format(n))),
    "guards_big": _numbered(
        lambda n: record(
            {"dynamo_cpp_guards_str": {}, **_context(n), "has_payload": None}, "".join(_GUARD.format(n * 10_000 + k) for k in range(10_000))
        )
    ),
    "guard_kinds": _numbered(
        lambda n: record(
            {"dynamo_cpp_guards_str": {}, **_context(n), "has_payload": None}, "\n".join(f"+- K{n}_{k}: L['x{n}_{k}']" for k in range(5000))
        )
    ),
    "symbols": _numbered(
        lambda n: record(
            {"create_symbol": {"symbol": f"s{n}", "val": str(n), "vr": "[2, int_oo]", "source": f"L['x{n}'].size()[0]"}, **_context(0)}
        )
    ),
    "events": _numbered(
        lambda n: record(
            {"chromium_event": {}, **_context(n), "has_payload": None},
            f'{{\n"name": "p{n}",\n"ts": {n}.0,\n"args": {{\n}},\n"ph": "{"BE"[n % 2]}",\n"cat": "c"\n}}',
        )
    ),
    "event_names": _numbered(
        lambda n: b"".join(
            record(
                {"chromium_event": {}, "has_payload": None},
                f'{{\n"name": "p{n}",\n"ts": {n}.0,\n"args": {{\n}},\n"ph": "{kind}",\n"cat": "c"\n}}',
            )
            for kind in "BE"
        )
    ),
    "caches": _numbered(lambda n: artifact("fx_graph_cache_bypass", f'{{"cache_bypass_reason": "no {n}"}}', n)),
    "graphs": _numbered(lambda n: record({"dynamo_output_graph": {}, **_context(n), "has_payload": None}, _graph_text(3))),
    "graphs_of_one": _numbered(lambda n: record({"dynamo_output_graph": {}, **_context(0), "has_payload": None}, _graph_text(2))),
    "graph_ops": _numbered(
        lambda n: record(
            {"dynamo_output_graph": {}, **_context(n), "has_payload": None},
            "class G(M):\n    def forward(self, a):\n"
            + "".join(f"        a{k} = torch.op{n}_{k}(a)\n" for k in range(500))
            + "        return (a,)\n",
        )
    ),
    "graph_one": _once(lambda size: record({"dynamo_output_graph": {}, **_context(0), "has_payload": None}, _graph_text(size // 60))),
    "graph_40mb": lambda: iter([start(0) + record({"dynamo_output_graph": {}, **_context(0), "has_payload": None}, _graph_text(800_000))]),
    "tensors": _numbered(
        lambda n: (
            record(
                {
                    "describe_tensor": {
                        "id": n,
                        "ndim": 1,
                        "dtype": "torch.float32",
                        "device": "device(type='cpu')",
                        "size": [n],
                        "stride": [1],
                        "storage": n,
                        "view_func": "x",
                        "describer_id": 0,
                    },
                    **_context(0),
                }
            )
            + record({"describe_source": {"describer_id": 0, "id": n, "source": f"L['x{n}']"}, **_context(0)})
        )
    ),
    "aot_metadata": _numbered(
        lambda n: artifact(
            "aot_forward_graph_fw_metadata",
            "ViewAndMutationMeta(input_info=[InputAliasInfo(is_leaf=True, mutates_data=True)], output_info=[])",
            n,
        )
    ),
    "aot_inputs": _numbered(
        lambda n: artifact(
            "aot_forward_graph_fw_metadata",
            "ViewAndMutationMeta(input_info=[" + "InputAliasInfo(is_leaf=True, mutates_data=True)," * 20_000 + "], output_info=[])",
            n,
        )
    ),
    "side_effects": _numbered(
        lambda n: artifact(
            "dynamo_side_effects",
            "".join(
                f"Mutating object of type list (source name: L['x{n}_{k}'])\n  File \"a.py\", line {k}, in f\n    x{n}_{k}.append(1)\n"
                for k in range(100)
            ),
            n,
        )
    ),
    "probes": _numbered(lambda n: _mutations(n)),
    "problems": _numbered(lambda n: artifact("dynadiag_problem", {"kind": "suppressed_error", "text": f"e{n}"}, n)),
    "problem_kinds": _numbered(
        lambda n: artifact(
            "dynadiag_problem",
            {"kind": f"k{n}", "text": f"e{n}" * 500, "stack": [{"file": f"a{n}", "line": n, "function": "f", "code": "x"}] * 30},
            n,
        )
    ),
    "compile_calls": _numbered(
        lambda n: artifact(
            "dynadiag_compile_call", {"target": f"t{n}", "backend": "x", "options": {"a": n}, "stack": [{"file": "a.py", "line": n}]}
        )
    ),
    "compile_options": _numbered(
        lambda n: artifact("dynadiag_compile_call", {"target": f"t{n}", "options": {f"k{k}": n for k in range(500)}})
    ),
    "registry": _numbered(lambda n: artifact("dynadiag_registry", {"gb_id": f"GB{n}", "explanation": "x" * 5000, "hints": ["h"] * 50})),
    "configs": _numbered(lambda n: artifact("dynadiag_config", {"dynamo": {f"o{n}_{k}": [k] for k in range(50)}}, pid=n + 1)),
    "config_options": _numbered(lambda n: artifact("dynadiag_config", {"options": {f"a{n}": [f"o{n}_{k}" for k in range(50)]}})),
    "environments": _numbered(
        lambda n: artifact(
            "dynadiag_environment",
            {"pid": n, "rank": n, "torch": f"2.{n}", "env": {f"E{n}": "v" * 900}, "argv": ["x"] * 40, "site_prefixes": [f"/p{n}"]},
            pid=n + 1,
        )
    ),
    "site_prefixes": _numbered(lambda n: artifact("dynadiag_environment", {"site_prefixes": [f"/p{n}_{k}" for k in range(100)]})),
    "hooks": _numbered(lambda n: artifact("dynadiag_hooks", {f"h{n}": "x"})),
    "costs": _numbered(
        lambda n: artifact(
            "dynadiag_cost",
            {"how": "x", "regions": [{"calls": 3, "region_us": 1.0, "region": f"r{n}_{k}", "frame_id": n} for k in range(100)]},
        )
    ),
    "counters": _numbered(lambda n: artifact("dynadiag_exit", {"counters": {f"g{n}": {f"c{k}": k for k in range(100)}}}, pid=n + 1)),
    "entries": _numbered(lambda n: artifact("dynadiag_entry", {"stack": [{"file": f"a{n}_{k}", "line": k} for k in range(100)]}, n)),
    "parity": _numbered(
        lambda n: artifact(
            "dynadiag_parity",
            {
                "graph": n,
                "call": n,
                "verdict": "different",
                "differences": [{"kind": "values", "where": "output", "index": k, "name": f"o{n}_{k}"} for k in range(20)],
            },
            n,
        )
    ),
    "parity_calls": _numbered(lambda n: artifact("dynadiag_parity", {"graph": 0, "call": n, "verdict": "not_compared", "why": f"w{n}"}, 0)),
    "graph_details": _numbered(lambda n: artifact("dynadiag_graph", {"nodes": [["a", [], 0]], "strings": [f"{n}"]}, n)),
    "json_dicts": _numbered(lambda n: artifact("dynadiag_hooks", "[" + "{}," * 12_000_000 + "{}]")),
    "json_deep": _numbered(lambda n: artifact("dynadiag_hooks", "[" * 5_000_000)),
    "json_header": _numbered(lambda n: record({"dynamo_start": {"stack": [{}] * 3_000_000}, **_context(n)})),
    "json_digits": _numbered(lambda n: artifact("dynadiag_hooks", '{"a": ' + "9" * 5_000_000 + "}")),
    "one_line": _repeated(b"x" * 65536),
    "one_header": _repeated(b"[" * 65536, b'V0101 10:00:00 1] {"dynamo_start": '),
    "text_breaks": _numbered(lambda n: _BREAK.format(n).encode(), b"Graph break in user code at a.py:3\n"),
    "text_breaks_ids": _numbered(
        lambda n: b"".join(
            b"V0101 10:00:00.000000 77 torch/_dynamo/x.py:1] [%d/0] [__graph_breaks] %s\n" % (n, line)
            for line in _BREAK.format(n).encode().split(b"\n")
        ),
        b"Graph break in user code at a.py:3\n",
    ),
    "text_breaks_same": _numbered(
        lambda n: b"".join(
            b"V0101 10:00:00.000000 77 torch/_dynamo/x.py:1] [0/0] [__graph_breaks] %s\n" % line
            for line in _BREAK.format(n).encode().split(b"\n")
        ),
        b"Graph break in user code at a.py:3\n",
    ),
    "text_recompiles": _numbered(
        lambda n: (
            b"V0101 10:00:00.000000 77 torch/_dynamo/guards.py:1] [0/%d] [__recompiles] Recompiling function "
            b"f%d in /home/u/train.py:%d\nV0101 10:00:00.000000 77 torch/_dynamo/guards.py:1] [0/%d] [__recompiles]     "
            b"- 0/0: L['x'] == %d\n" % (n, n, n, n, n)
        ),
        b"Graph break in user code at a.py:3\n",
    ),
    "text_recompiles_functions": _numbered(
        lambda n: (
            b"V0101 10:00:00.000000 77 torch/_dynamo/guards.py:1] [%d/1] [__recompiles] Recompiling function "
            b"f%d in /home/u/train.py:%d\nV0101 10:00:00.000000 77 torch/_dynamo/guards.py:1] [%d/1] [__recompiles]     "
            b"- %d/0: L['x'] == %d\n" % (n, n, n, n, n, n)
        ),
        b"Graph break in user code at a.py:3\n",
    ),
    "text_ranks": _numbered(
        lambda n: b"[rank%d]: Graph break in user code at /home/u/train.py:%d\n" % (n % 999_999, n), b"Graph break in user code at a.py:3\n"
    ),
    "text_pids": _numbered(
        lambda n: b"V0101 10:00:00.000000 %d torch/_dynamo/x.py:1] [0/0] [__graph_breaks] Graph break in user code at a.py:3\n" % (n + 1),
        b"Graph break in user code at a.py:3\n",
    ),
    "text_legacy": _numbered(
        lambda n: b"Unable to use AOT Autograd because graph has mutation %d\n" % n, b"Graph break in user code at a.py:3\n"
    ),
    "text_limits": _numbered(
        lambda n: b"torch._dynamo hit config.recompile_limit (8)\n   function: 'f%d' (a.py:%d)\n" % (n, n),
        b"Graph break in user code at a.py:3\n",
    ),
    "text_plain": _repeated(b"step 100: loss 0.123456789 learning rate 0.0003 tokens per second 123456 and more to be read by people\n"),
    "text_prefixed": _repeated(b"2026-01-01 10:00:00,000 INFO torch.distributed: step 100 loss 0.123456789 tokens per second 123456\n"),
    "text_escapes": _repeated(b"\x1b[31m\x1b]0;title\x1b[" + b";" * 200 + b"\n"),
    "text_backtrack": _repeated(b"[" + b"a.-" * 30_000 + b"\n" + b" " * 90_000 + b"[" + b"-" * 9_000 + b"\n"),
    "text_graphs": _numbered(lambda n: f"TRACED GRAPH\n{_graph_text(3)}".encode(), b"Graph break in user code at a.py:3\n"),
}


def folder_of(name: str, folder: Path) -> Path | None:
    """The attacks that are folders of many logs."""
    counts = {"ranks": 3000, "ranks_many": 9000, "files": 20_000, "ranks_breaks": 3000, "ranks_config": 3000}
    if name not in counts:
        return None
    place = folder / name
    place.mkdir()
    for number in range(counts[name]):
        if name == "files":
            (place / f"a{number}.log").write_bytes(b"Graph break in user code at a.py:3\n")
            continue
        text = record({"str": ["/home/u/train.py", 1]}) + start(0, name=f"f{number}", line=number)
        if name == "ranks_breaks":
            text += b"".join(artifact("dynamo_graph_break_reason", _BREAK.format(number * 5 + k), 0) for k in range(5))
        if name == "ranks_config":
            text += artifact("dynadiag_config", {"dynamo": {f"o{number}_{k}": k for k in range(100)}})
        (place / f"dedicated_log_torch_trace_rank_{number}_.log").write_bytes(text)
    return place


FOLDERS = ("ranks", "ranks_many", "files", "ranks_breaks", "ranks_config")


def write(name: str, folder: Path, megabytes: float) -> Path:
    """The attack as a file of the wanted size (or less, when it is one record), or as a folder."""
    made = folder_of(name, folder)
    if made is not None:
        return made
    path, size = folder / f"{name}.log", int(megabytes * 1e6)
    _SIZE[0] = size
    with path.open("wb") as stream:
        for piece in ATTACKS[name]():
            stream.write(piece)
            if stream.tell() >= size:
                break
        stream.truncate(min(size, stream.tell()))
    return path


def measure(command: list[str]) -> tuple[int, float, float, str]:
    """Exit status, CPU seconds, peak MB and the end of stderr of a program; it is ended after LONGEST_S seconds of CPU time."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S))

    with tempfile.TemporaryFile() as errors:
        known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as a user has it
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit, env=known)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read()[-2000:].decode(errors="replace")
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said


def reference_s(megabytes: float) -> float:
    """CPU seconds that `json.loads` needs now for so many MB of record headers, from a loop over a tenth of 100 MB."""
    line = start(1)[len(_HEAD) + 2 + len(_PLACE) :]
    count = 10_000_000 // len(line)
    begun = time.process_time()
    for _ in range(count):
        json.loads(line)
    return (time.process_time() - begun) * megabytes / 10


def size_of(path: Path) -> int:
    """The bytes of a log or of all logs in a folder."""
    return path.stat().st_size if path.is_file() else sum(file.stat().st_size for file in path.iterdir())


def main() -> int:
    """Measures the attacks and says which need too much."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mb", type=float, default=100, help="size of each log in MB")
    parser.add_argument("--only", nargs="+", choices=[*ATTACKS, *FOLDERS], help="the attacks to try (default: all)")
    parser.add_argument("--formats", nargs="+", default=["json"], choices=[*FORMS], help="the formats to print; full is text with --full")
    parser.add_argument("--work", type=Path, help="folder to work in (default: a temporary one)")
    parser.add_argument("--tlparse", type=Path, help="the tlparse program, to read each log beside us")
    options = parser.parse_args()
    failed = []
    for name in options.only or [*ATTACKS, *FOLDERS]:
        with tempfile.TemporaryDirectory(dir=options.work) as folder:
            path = write(name, Path(folder), options.mb)
            size = size_of(path) / 1e6
            for form in options.formats:
                command = [sys.executable, "-m", "dynadiag", "explain", *FORMS[form], str(path)]
                status, cpu_s, peak_mb, said = measure(command)
                good = (
                    cpu_s <= WANTED_S * max(1.0, size / 100) and peak_mb <= WANTED_MB and status in (0, 2) and "internal error" not in said
                )
                if not good:
                    failed.append(f"{name} ({form})")
                ratio = cpu_s / reference_s(size)
                words = f"{name:22}{form:8}{size:7.1f} MB  {cpu_s:7.1f} s CPU ({ratio:6.2f})  {peak_mb:7.0f} MB peak  exit {status}"
                print(
                    words,
                    "" if good else "TOO MUCH",
                    said.strip().splitlines()[-1][:100] if status not in (0, 2) and said else "",
                    flush=True,
                )
            if options.tlparse and path.is_file():
                command = [str(options.tlparse), str(path), "-o", f"{folder}/pages", "--overwrite", "--no-browser"]
                status, cpu_s, peak_mb, _ = measure(command)
                print(f"{name:22}tlparse {size:7.1f} MB  {cpu_s:7.1f} s CPU           {peak_mb:7.0f} MB peak  exit {status}", flush=True)
    print(f"{len(failed)} too much: {', '.join(failed)}" if failed else "all within the limits")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
