"""The tools that `dynadiag mcp` offers: verbs run as child processes, their JSON, and a short text for a context window."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError

import dynadiag
from dynadiag.errors import DynadiagError, OutputError, UnreadableInputError, UsageError
from dynadiag.files import read_small, write_file
from dynadiag.record.directory import new_directory
from dynadiag.render.sanitise import clean, clean_block
from dynadiag.scratch import scratch
from dynadiag.trace.sources import recording_at
from dynadiag_cli.mcp_children import Ended, run_verb
from dynadiag_cli.mcp_confinement import Confinement, checked_code
from dynadiag_cli.options import LONGEST_S
from dynadiag_cli.verb_minify import Kind

TEXT_CHARACTERS = 6_000
JSON_CHARACTERS = 60_000
"""An answer goes into a context window: longer lists are cut, and `cut` says where all of it is."""
_ENTRIES = (200, 50, 20, 10, 5, 2, 0)
_LARGEST_FILE = 64 << 20
_LONGEST_ERROR = 2000
_LONGEST_PATCH = 400_000
INSTRUCTIONS = """Diagnoses programs that use torch.compile. Begin with `explain` on a script, a run directory or a log: its findings are
ranked, most expensive first, each with its line and the change to make. `rule` explains a code, `graph` shows a captured graph, `fix`
applies and proves the advice on a copy and gives a patch, `minify` reduces a failure to one small file, `check` judges limits for
CI. `start` says why the next start compiles again, `numerics` where compiled values leave eager's. `prove`, where it is offered, says
whether an edit of yours changes a result.
Paths lie in the folder of the server; `args` are for a script alone."""

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
"""These run the program that they are given, which may do anything; of its files none is changed by us."""
Words = Annotated[
    list[str], Field(max_length=1000, description="What the script is given, where target is a script; none for a recording.")
]
Seconds = Annotated[float, Field(ge=1, le=LONGEST_S, allow_inf_nan=False)]
Limit = Annotated[int, Field(ge=0, le=1_000_000_000)]
Codes = Annotated[list[str], Field(max_length=100)]


class Tools:
    """The tools, for what the confinement lets through."""

    def __init__(self, confinement: Confinement) -> None:
        self._confinement = confinement
        self._in_use: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def explain(self, target: str, args: Words = [], timeout_s: Seconds = 600, python: str | None = None) -> CallToolResult:  # noqa: B006
        """Say where a torch.compile program breaks its graph, recompiles or runs eagerly, why, and what to change.

        `target` is a script (run with `args`), or a run directory or a log (only read).
        """
        interpreter = self._confinement.checked_python(python)
        target, is_program = await self._checked(target, args)
        run = target
        if is_program:
            directory = _new_directory(target)
            options = {"-q": None, "--force": None, "--out": str(directory), "--timeout": _seconds(timeout_s)}
            if interpreter is not None:
                options["--python"] = interpreter
            made = await run_verb("explain", options, [target, *args], limit_s=timeout_s + 120)
            if made.status == 2 and not any(directory.glob("*.log")):
                raise UnreadableInputError(made.error())
            run = str(directory)
        told = await run_verb("explain", {"--color": "never", "--no-pictures": None}, [run])
        read = await run_verb("explain", {"--format": "json", "--no-pictures": None}, [run])
        facts = read.json()
        kept = {name: facts.get(name) for name in ("schema_version", "summary", "findings", "notes", "failed_passes")}
        about = facts.get("run") or {}
        kept["run"] = {name: about.get(name) for name in ("command", "exit_status", "signal", "complete", "directory")}
        return _answer(told.out, kept, f"{run} (`dynadiag explain --format json`)")

    async def rule(self, codes: Codes) -> CallToolResult:
        """Explain codes of a report, such as GB0170 or DM05: what happened, why it costs something, what to change. No codes: list all."""
        asked = [checked_code(code) for code in codes]
        told, read = await run_verb("rule", {}, asked), await run_verb("rule", {"--json": None}, asked)
        return _answer(_printed(told), {"rules": read.json()}, "`dynadiag rule`")

    async def graph(self, run: str, graph_id: str) -> CallToolResult:
        """The text of one captured graph (g3) of a run directory or a log, or of Inductor's output code (o0) or a guard tree (t0)."""
        run = await to_thread.run_sync(self._confinement.checked_recording, run)
        told = _printed(await run_verb("graph", {"--text": None}, [run, checked_code(graph_id)]))
        facts = {"id": graph_id, "characters": len(told)}
        return _answer(told, facts, f"`dynadiag graph --text {run} {graph_id}`", limit=JSON_CHARACTERS)

    async def fix(self, target: str, args: Words = [], time_limit_s: Seconds = 900) -> CallToolResult:  # noqa: B006
        """Apply the advice to a copy of a script, keep what is proven to change nothing else, and give it as a patch. Changes no file.

        Runs the script many times; `target` may also be the run directory of one, which saves the first.
        """
        options: dict[str, str | None] = {"--time-limit": _seconds(time_limit_s)}
        target, is_program = await self._checked(target, args)
        if is_program:
            directory = _new_directory(target)
            options |= {"--force": None, "--out": str(directory)}
        else:
            await to_thread.run_sync(self._confinement.check_script_of_run, target)
            directory = recording_at(Path(target))
        async with self._in_use[os.path.realpath(directory)]:  # two of a run would write the same files
            told = await run_verb("fix", options, [target, *args], limit_s=time_limit_s + 600)
            if told.status > 1:  # what a run directory has then is an earlier answer
                raise UnreadableInputError(told.error())
            facts = _facts(directory / "fix.json", told)
            facts["patch"] = _text(directory / "fixes.patch")
        return _answer(told.out, facts, str(directory))

    async def prove(
        self,
        target: str,
        patch: Annotated[str, Field(max_length=_LONGEST_PATCH, description="The edit, as a unified diff of Python files of the project.")],
        args: Words = [],  # noqa: B006
    ) -> CallToolResult:
        """Say whether an edit of yours changes any result of a script: PROVEN, or the first value that differs. Changes no file.

        Runs the script before and after the edit, in eager and compiled. The answer also has the findings that the edit cured, brought and
        left, with advice: what to try next.
        """
        target, is_program = await self._checked(target, args)
        if not is_program:
            raise UsageError(f"{clean(target)} is a run or a log: prove takes the script")
        await to_thread.run_sync(self._confinement.check_patch, target, patch)
        with scratch("mcp") as folder:
            write_file(folder / "edit.patch", patch)
            options = {"--color": "never", "--patch": str(folder / "edit.patch"), "--out": str(folder / "out")}
            told = await run_verb("prove", options, [target, *args])
            if told.status > 1:
                raise UnreadableInputError(told.error())
            facts = _facts(folder / "out" / "prove.json", told)
        return _answer(told.out, facts, "`dynadiag prove --patch`")

    async def minify(
        self,
        target: str,
        args: Words = [],  # noqa: B006
        kind: Kind | None = None,
        timeout_s: Seconds = 300,
    ) -> CallToolResult:
        """Reduce a failing torch.compile program to one small file that needs torch alone, proven in fresh processes.

        `kind` looks for a failure that raises nothing: wrong_result, wrong_gradient, graph_break, recompile, ... Runs the script.
        """
        target, _ = await self._checked(target, args, with_graph=True)
        directory = _new_directory(target)
        options = {"-q": None, "--force": None, "--out": str(directory), "--timeout": _seconds(timeout_s)}
        if kind is not None:
            options["--kind"] = kind
        told = await run_verb("minify", options, [target, *args], limit_s=timeout_s * 20)
        facts = _facts(directory / "minify.json", told)
        name = str(facts.get("reproducer") or "repro_min.py")
        facts["reproducer_text"] = _text(directory / name) if (directory / name).parent == directory else None
        return _answer(told.err, facts, str(directory))

    async def check(
        self,
        target: str,
        args: Words = [],  # noqa: B006
        max_breaks: Limit | None = None,
        max_recompiles: Limit | None = None,
        max_fallbacks: Limit | None = None,
    ) -> CallToolResult:
        """Judge a script, run or log as CI would: which findings fail under the limits given and those in pyproject.toml."""
        limits = {"--max-breaks": max_breaks, "--max-recompiles": max_recompiles, "--max-fallbacks": max_fallbacks}
        options: dict[str, str | None] = {name: str(value) for name, value in limits.items() if value is not None}
        target, is_program = await self._checked(target, args)
        if is_program:
            options |= {"--out": str(_new_directory(target)), "--force": None}
        with scratch("mcp") as folder:
            options |= {"--format": "json", "-o": str(folder / "check.json")}
            told = await run_verb("check", options, [target, *args])
            facts = _facts(folder / "check.json", told)
        failed = (fact for fact in facts.get("problems", ()) if fact["status"] == "failed")
        lines = [
            f"{item['file']}:{item['line']}: {item['code']} {item['title']}" + (f". Fix: {item['fix']}" if item["fix"] else "")
            for item in failed
        ]
        return _answer("\n".join([*lines, told.err]), {**facts, "exit_status": told.status}, "`dynadiag check --format json`")

    async def start(
        self,
        target: str,
        args: Words = [],  # noqa: B006
        newer: Annotated[str | None, Field(description="A second recording, where target is one: the two starts are compared.")] = None,
        warm_up: Limit | None = None,
        cure: bool = False,
        timeout_s: Seconds = 600,
    ) -> CallToolResult:
        """Say why the second start of a program compiles again: which cache missed and because of what, with the line.

        A script is started twice on one new cache folder; with `cure` twice more with the changes for its causes. Two recordings are only
        read. `warm_up`: also report what compiles after so many calls.
        """
        target, is_program = await self._checked(target, args)
        if is_program is (newer is not None):
            raise UsageError("start takes one script, or two recordings: the second is `newer`")
        words = [target, *args] if newer is None else [target, await to_thread.run_sync(self._confinement.checked_recording, newer)]
        options: dict[str, str | None] = {"--color": "never"}
        if warm_up is not None:
            options["--warm-up"] = str(warm_up)
        if is_program:
            options |= {"--timeout": _seconds(timeout_s)} | ({"--cure": None} if cure else {})
        with scratch("mcp") as folder:
            ran = await run_verb("start", {**options, "--out": str(folder)}, words, limit_s=4 * timeout_s + 600)
            facts = _facts(folder / "start.json", ran)
        cured = facts.get("cured") or {}
        facts["patch"] = _text(Path(cured["patch"])) if cured.get("patch") else None
        return _answer(ran.err if is_program else ran.out, facts, "`dynadiag start --format json`")

    async def numerics(
        self,
        target: str,
        args: Words = [],  # noqa: B006
        graph: Limit | None = None,
        timeout_s: Seconds = 300,
    ) -> CallToolResult:
        """Say at which operator compiled values leave eager's, whether that is rounding or a fault, and which option ends it.

        Runs the script.
        """
        target, is_program = await self._checked(target, args)
        if not is_program:
            raise UsageError(f"{clean(target)} is a run or a log, which holds no values: numerics takes the script")
        directory = _new_directory(target)
        options = {"-q": None, "--force": None, "--out": str(directory), "--timeout": _seconds(timeout_s)}
        if graph is not None:
            options["--graph"] = str(graph)
        ran = await run_verb("numerics", options, [target, *args], limit_s=timeout_s * 20)
        return _answer(ran.err, _facts(directory / "numerics.json", ran), str(directory))

    async def _checked(self, target: str, args: list[str], *, with_graph: bool = False) -> tuple[str, bool]:
        """The target as its verb is given it, and whether it is a program. Other calls go on meanwhile."""

        def checked() -> tuple[str, bool]:
            found, is_program = self._confinement.checked_target(target, with_graph=with_graph)
            self._confinement.check_arguments(target, is_program, args)
            return found, is_program

        return await to_thread.run_sync(checked)


_Tool = Callable[..., Awaitable[CallToolResult]]
HINTS: Mapping[str, ToolAnnotations] = {
    **dict.fromkeys(("explain", "fix", "minify", "check", "start", "numerics"), RUNS),
    **dict.fromkeys(("rule", "graph"), READS),
}
EDITS: Mapping[str, ToolAnnotations] = {"prove": RUNS}
"""Tools that run a text that the call gives."""


def server(confinement: Confinement) -> MCPServer:
    """The server with its tools; `run()` serves on stdin and stdout."""
    tools = Tools(confinement)
    made = [_tool(getattr(tools, name), hints) for name, hints in {**HINTS, **(EDITS if confinement.edits else {})}.items()]
    return MCPServer("dynadiag", version=dynadiag.__version__, instructions=INSTRUCTIONS, tools=made)


def _tool(function: _Tool, hints: ToolAnnotations) -> Tool:
    """The tool of a function, which takes no arguments but its own: what a client believes to have asked for is not left out."""
    made = _CheckedTool.from_function(_in_one_line(function), annotations=hints, structured_output=False)
    arguments = made.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    made.parameters = arguments.model_json_schema(by_alias=True)
    return made


class _CheckedTool(Tool):
    """A tool that says in one line what is wrong with the arguments of a call (mcp 2: the text of pydantic, several lines)."""

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        try:
            self.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ToolError(f"Error executing tool {self.name}: {_wrong(error)}") from None
        return await super().run(arguments, context, convert_result)


def _wrong(error: ValidationError) -> str:
    """The first argument that is wrong, and what it may be."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = found[0]
    name = clean(".".join(map(str, first["loc"])), limit=100)
    what = f"there is no argument {name}" if first["type"] == "extra_forbidden" else f"{name}: {clean(first['msg'], limit=200)}"
    return what if len(found) == 1 else f"{what} (and {len(found) - 1} more)"


def _in_one_line(function: _Tool) -> _Tool:
    """The same, with an error of ours as an error of the tool."""

    @functools.wraps(function)
    async def called(*args: Any, **words: Any) -> CallToolResult:
        try:
            return await function(*args, **words)
        except DynadiagError as error:
            raise ToolError(clean(error.message, limit=_LONGEST_ERROR)) from None

    return called


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _printed(told: Ended) -> str:
    if told.status:
        raise UnreadableInputError(told.error())
    return told.out


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
        return [_cut(item, entries) for item in value[:entries]]
    if isinstance(value, dict):
        return {name: _cut(element, entries) for name, element in list(value.items())[: max(entries, 40)]}
    return value if not isinstance(value, str) or len(value) <= 100 * entries + 400 else value[: 100 * entries + 400] + "..."


def _facts(path: Path, ran: Ended) -> dict[str, Any]:
    """The JSON that a verb wrote."""
    try:
        found = json.loads(read_small(path, _LARGEST_FILE))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise UnreadableInputError(ran.error())
    return found


def _text(path: Path) -> str | None:
    """A file of ours in a folder that may be a stranger's: a link is not followed."""
    try:
        return read_small(path, _LARGEST_FILE).decode("utf-8", "replace")
    except OSError:
        return None


def _new_directory(target: str) -> Path:
    try:
        return new_directory(Path.cwd(), os.path.basename(target))  # noqa: PTH119
    except OSError as error:
        raise OutputError(f"dynadiag-runs cannot be written: {error.strerror or error}") from None
