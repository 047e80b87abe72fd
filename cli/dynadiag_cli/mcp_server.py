"""The tools that `dynadiag mcp` offers: verbs run as child processes, their JSON, and a short text for a context window."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations

import dynadiag
from dynadiag.record.directory import new_directory
from dynadiag.render.sanitise import clean_block
from dynadiag.trace.sources import is_recording, recording_at

TEXT_CHARACTERS = 6_000
JSON_CHARACTERS = 60_000
"""An answer goes into a context window: longer lists are cut, and `cut` says where all of it is."""
_ENTRIES = (200, 50, 20, 10, 5, 2, 0)
_END_S = 10.0
INSTRUCTIONS = """Diagnoses programs that use torch.compile. Begin with `explain` on a script, a run directory or a log: its findings are
ranked, most expensive first, each with its line and the change to make. `rule` explains a code, `graph` shows a captured graph, `fix`
applies and proves the advice on a copy and gives a patch, `minify` reduces a failure to one small file, `check` judges limits for CI."""

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
"""These run the program that they are given, which may do anything; of its files none is changed by us."""


async def explain(target: str, args: Sequence[str] = (), timeout_s: float = 600, python: str | None = None) -> CallToolResult:
    """Say where a torch.compile program breaks its graph, recompiles or runs eagerly, why, and what to change.

    `target` is a script (run with `args`), or a run directory or a log (only read).
    """
    run = _checked(target)
    if _is_program(target):
        directory = _new_directory(target)
        made = await _verb(
            "explain", "-q", "--force", "--out", str(directory), *_limits(timeout_s, python), target, *args, limit_s=timeout_s + 120
        )
        if made.status == 2 and not any(directory.glob("*.log")):
            raise ToolError(made.error())
        run = str(directory)
    told = await _verb("explain", "--color", "never", "--no-pictures", run)
    read = await _verb("explain", "--format", "json", "--no-pictures", run)
    facts = read.json()
    kept = {name: facts.get(name) for name in ("schema_version", "summary", "findings", "notes", "failed_passes")}
    about = facts.get("run") or {}
    kept["run"] = {name: about.get(name) for name in ("command", "exit_status", "signal", "complete", "directory")}
    return _answer(told.out, kept, f"{run} (`dynadiag explain --format json`)")


async def rule(codes: list[str]) -> CallToolResult:
    """Explain codes of a report, such as GB0170 or DM05: what happened, why it costs something, what to change. No codes: list all."""
    asked = [_checked(code) for code in codes]
    told, read = await _verb("rule", *asked), await _verb("rule", "--json", *asked)
    return _answer(told.out, {"rules": read.json()}, "`dynadiag rule`")


async def graph(run: str, graph_id: str) -> CallToolResult:
    """The text of one captured graph (g3) of a run directory or a log, or of Inductor's output code (o0) or a guard tree (t0)."""
    told = await _verb("graph", "--text", _checked(run), _checked(graph_id))
    return _answer(
        told.out, {"id": graph_id, "characters": len(told.out)}, f"`dynadiag graph --text {run} {graph_id}`", limit=JSON_CHARACTERS
    )


async def fix(target: str, args: Sequence[str] = (), time_limit_s: float = 900) -> CallToolResult:
    """Apply the advice to a copy of a script, keep what is proven to change nothing else, and give it as a patch. Changes no file.

    Runs the script many times; `target` may also be the run directory of one, which saves the first.
    """
    recording = not _is_program(_checked(target))
    directory = recording_at(Path(target)) if recording else _new_directory(target)
    words = () if recording else ("--force", "--out", str(directory))
    told = await _verb("fix", *words, "--time-limit", f"{time_limit_s:g}", target, *args, limit_s=time_limit_s + 600)
    if told.status > 1:  # what a run directory has then is an earlier answer
        raise ToolError(told.error())
    facts = _file(directory / "fix.json", told)
    patch = directory / "fixes.patch"
    facts["patch"] = patch.read_text("utf-8", "replace") if patch.is_file() else None
    return _answer(told.out, facts, str(directory))


async def minify(target: str, args: Sequence[str] = (), kind: str | None = None, timeout_s: float = 300) -> CallToolResult:
    """Reduce a failing torch.compile program to one small file that needs torch alone, proven in fresh processes.

    `kind` looks for a failure that raises nothing: wrong_result, wrong_gradient, graph_break, recompile, ... Runs the script.
    """
    directory = _new_directory(target)
    words = ("-q", "--force", "--out", str(directory), "--timeout", f"{timeout_s:g}", *(("--kind", _checked(kind)) if kind else ()))
    told = await _verb("minify", *words, target, *args, limit_s=timeout_s * 20)
    facts = _file(directory / "minify.json", told)
    repro = directory / str(facts.get("reproducer") or "repro_min.py")
    facts["reproducer_text"] = repro.read_text("utf-8", "replace") if repro.parent == directory and repro.is_file() else None
    return _answer(told.err, facts, str(directory))


async def check(
    target: str,
    args: Sequence[str] = (),
    max_breaks: int | None = None,
    max_recompiles: int | None = None,
    max_fallbacks: int | None = None,
) -> CallToolResult:
    """Judge a script, run or log as CI would: which findings fail under the limits given and those in pyproject.toml."""
    limits = {"--max-breaks": max_breaks, "--max-recompiles": max_recompiles, "--max-fallbacks": max_fallbacks}
    words = [word for name, value in limits.items() if value is not None for word in (name, str(value))]
    directory = ("--out", str(_new_directory(target)), "--force") if _is_program(_checked(target)) else ()
    with contextlib.ExitStack() as stack:
        from dynadiag.scratch import scratch

        found = stack.enter_context(scratch("mcp")) / "check.json"
        told = await _verb("check", *words, *directory, "--format", "json", "-o", str(found), target, *args)
        facts = _file(found, told)
    failed = (one for one in facts.get("problems", ()) if one["status"] == "failed")
    lines = [
        f"{one['file']}:{one['line']}: {one['code']} {one['title']}" + (f". Fix: {one['fix']}" if one["fix"] else "") for one in failed
    ]
    return _answer("\n".join([*lines, told.err]), {**facts, "exit_status": told.status}, "`dynadiag check --format json`")


TOOLS: Mapping[Callable[..., Any], ToolAnnotations] = {explain: RUNS, rule: READS, graph: READS, fix: RUNS, minify: RUNS, check: RUNS}


def server() -> MCPServer:
    """The server with its tools; `run()` serves on stdin and stdout."""
    made = MCPServer("dynadiag", version=dynadiag.__version__, instructions=INSTRUCTIONS)
    for tool, hints in TOOLS.items():
        made.add_tool(tool, annotations=hints, structured_output=False)
    return made


class _Ran:
    """What a verb printed, and its exit status."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def error(self) -> str:
        """The line that says what is wrong."""
        lines = self.err.strip().splitlines() or [f"exit status {self.status}"]
        return clean_block(
            next((line for line in lines if "error:" in line.lower()), lines[-1]).removeprefix("dynadiag: error: "), limit=1000
        )

    def json(self) -> Any:
        """The JSON that it printed; ToolError where it printed none."""
        try:
            return json.loads(self.out)
        except ValueError:
            raise ToolError(self.error()) from None


async def _verb(*words: str, limit_s: float = 900) -> _Ran:
    """Run a verb beside us, with nothing on its stdin: our own streams carry the protocol. It ends with its call."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dynadiag",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(child.communicate(), limit_s)
    except TimeoutError:
        raise ToolError(f"dynadiag {words[0]} did not end within {limit_s:g} s") from None
    finally:
        await _end(child)
    made = _Ran(child.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
    if words[0] in ("rule", "graph") and made.status:
        raise ToolError(made.error())
    return made


async def _end(child: asyncio.subprocess.Process) -> None:
    """A call that was cancelled, or took too long, leaves nothing running: the verb ends its program when it is interrupted."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if child.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(child.wait()), _END_S)


def _answer(text: str, facts: Mapping[str, Any], where: str, *, limit: int = TEXT_CHARACTERS) -> CallToolResult:
    """The short text, and the facts, whose lists are cut until they fit."""
    shown = clean_block(text.strip(), limit=limit, lines=limit)
    return CallToolResult(content=[TextContent(type="text", text=shown)], structured_content=_fitting(facts, where))


def _fitting(facts: Mapping[str, Any], where: str) -> dict[str, Any]:
    if len(json.dumps(facts)) <= JSON_CHARACTERS:
        return dict(facts)
    for entries in _ENTRIES:
        cut = {**{name: _cut(value, entries) for name, value in facts.items()}, "cut": f"all of it: {where}"}
        if len(json.dumps(cut)) <= JSON_CHARACTERS:
            break
    return cut


def _cut(value: Any, entries: int) -> Any:
    if isinstance(value, list):
        return [_cut(one, entries) for one in value[:entries]]
    if isinstance(value, dict):
        return {name: _cut(one, entries) for name, one in list(value.items())[: max(entries, 40)]}
    return value if not isinstance(value, str) or len(value) <= 100 * entries + 400 else value[: 100 * entries + 400] + "..."


def _file(path: Path, ran: _Ran) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise ToolError(ran.error()) from None
    return dict(found)


def _checked(word: str) -> str:
    """A word that stands where a target does: never an option."""
    if not word or word.startswith("-"):
        raise ToolError(f"{word!r} is no script, run, log or code")
    return word


def _is_program(target: str) -> bool:
    from dynadiag.errors import DynadiagError

    try:
        return not is_recording(Path(target))
    except DynadiagError as error:
        raise ToolError(error.message) from None


def _limits(timeout_s: float, python: str | None) -> tuple[str, ...]:
    return ("--timeout", f"{timeout_s:g}", *(("--python", _checked(python)) if python else ()))


def _new_directory(target: str) -> Path:
    if not Path(_checked(target).partition("#")[0]).exists():
        raise ToolError(f"no such file or folder: {target} (a script, a run directory or a log was expected)")
    try:
        return new_directory(Path.cwd(), os.path.basename(target))  # noqa: PTH119
    except OSError as error:
        raise ToolError(f"dynadiag-runs cannot be written: {error.strerror or error}") from None
