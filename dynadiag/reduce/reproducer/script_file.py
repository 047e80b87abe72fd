"""`repro_min.py` of a script: a header, the program, and a last assertion that shows the failure with torch alone. Without torch."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.scripts.names import SCOPES
from dynadiag.reduce.scripts.program import Program, imported

_GB_ID = re.compile(r"^GB(\d{4})\b")
_OF_TORCH = ("torch", "functorch", "torchgen")  # what the wheel installs


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the first lines say: `versions`, and the `story` of how the program came about."""

    versions: str
    story: str


def reproducer(program: Program, failure: Failure, header: Header, *, expect_failure: bool = True, form: str = "counters") -> str:
    """The text of the file. `form` says how a graph break is looked for: in torch's counters, or in its trace, which tells every break."""
    before, after = _shown_by(failure, form)
    body = program.tree.body
    future = _spaced([node for node in body if _is_first(node)])
    rest = _spaced([node for node in body if not _is_first(node)])
    return "\n\n".join(part for part in (_header(program, failure, header, expect_failure), future, before, rest, after) if part) + "\n"


FORMS = ("counters", "trace")


def _shown_by(failure: Failure, form: str) -> tuple[str, str]:
    """What stands before and behind the program."""
    if failure.kind == "graph_break":
        number = _GB_ID.match(failure.message)
        sign = f"gb{number[1]}.html" if number else failure.message.splitlines()[0]
        if form == "trace":
            return _TRACE, _AFTER_BREAK.replace("SIGN", repr(sign)).replace("REASONS", "_reasons")
        return "", "import torch._dynamo.utils\n\n" + _AFTER_BREAK.replace("SIGN", repr(sign)).replace(
            "REASONS", 'torch._dynamo.utils.counters["graph_break"]'
        )
    if failure.kind == "hang":
        return "import faulthandler\n\nfaulthandler.dump_traceback_later(30, exit=True)  # it hangs: show where, and end", ""
    if failure.kind == "recompile" and form == "trace":
        return _TRACE.replace(*_RECOMPILES), _AFTER_RECOMPILE.replace("SIGN", repr(guarded_name(failure)))
    if failure.kind == "recompile":
        return "import torch._dynamo\n\ntorch._dynamo.config.error_on_recompile = True", ""
    if failure.kind == "cudagraph_skip":
        return "", _AFTER_CUDAGRAPHS
    if failure.kind == "fallback" and failure.phase == "recompile_limit":
        return "import torch._dynamo\n\ntorch._dynamo.config.fail_on_recompile_limit_hit = True", ""
    if failure.kind == "fallback":
        return "", _AFTER_FALLBACK.replace("WHAT", failure.phase.replace("_", " "))
    return "", ""


def guarded_name(failure: Failure) -> str:
    """The name in the guard that failed; "" where it has none."""
    name = failure.message.rpartition(" of ")[2].partition(".")[0]
    return name if name.isidentifier() else ""


_AFTER_BREAK = """breaks = [reason for reason in REASONS if SIGN in reason]
assert not breaks, f"graph break: {breaks[0]}\""""
_TRACE = '''import logging

import torch

_reasons = []


class _Breaks(logging.Handler):
    """Keeps what torch writes into its trace of it (as with TORCH_TRACE)."""

    def emit(self, record):
        artifact = (getattr(record, "metadata", None) or {}).get("artifact", {})
        if artifact.get("name") == "dynamo_graph_break_reason":
            _reasons.append(record.payload)


torch._logging._internal.trace_log.addHandler(_Breaks())
torch._logging._internal.trace_log.setLevel(logging.DEBUG)'''
_RECOMPILES = ("dynamo_graph_break_reason", "recompile_reasons")
_AFTER_RECOMPILE = """again = [reason for reason in _reasons if SIGN in reason]
assert not again, f"recompile: {again[0]}\""""
_AFTER_CUDAGRAPHS = """import torch._dynamo.utils

skips = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
assert not skips, f"cudagraph skip: {skips} graphs run without CUDA graphs\""""
_AFTER_FALLBACK = """import torch._dynamo.utils

frames = torch._dynamo.utils.counters["frames"]
assert frames["ok"] == frames["total"] > 0, f"eager fallback (WHAT): {frames['ok']} of {frames['total']} frames were compiled\""""


def _header(program: Program, failure: Failure, header: Header, expect_failure: bool) -> str:
    packages = sorted(name for name in imported(program) if name not in sys.stdlib_module_names and name not in _OF_TORCH)
    lines = [
        f"{failure.kind.replace('_', ' ')}: {_first_line_of(failure)}",
        "This program shows the failure." if expect_failure else "This program does not show the failure; repro_min.py does.",
        header.story,
        f"Measured with {header.versions}.",
        *([f"Besides torch it needs: {', '.join(packages)}."] if packages else []),
    ]
    return "\n".join(f"# {_one_line(line)}" for line in lines)


def _first_line_of(failure: Failure) -> str:
    return failure.message.splitlines()[0] if failure.message and not failure.exceptions else failure.title()


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))[:300]


def _spaced(statements: Sequence[ast.stmt]) -> str:
    """Their text, with blank lines around definitions."""
    text = ""
    for before, node in zip([None, *statements], statements, strict=False):
        around = isinstance(before, SCOPES) or isinstance(node, SCOPES)
        text += ("\n\n" if before is not None and around else "") + ast.unparse(node).strip("\n") + "\n"
    return text.rstrip("\n")


def _is_first(node: ast.stmt) -> bool:
    """Whether Python wants it before any other statement: annotations that name nothing may depend on it."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
