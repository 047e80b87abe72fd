"""`dynadiag minify`: run a failing script, take the failing graph out of it, and end with the smallest reproducer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from dynadiag.errors import UsageError
from dynadiag_cli.command_line import MODE
from dynadiag_cli.options import LONGEST_S, Force, Open, Out, Outputs

EXAMPLES = """Examples:

  dynadiag minify train.py --lr 3e-4

  dynadiag minify --kind wrong_result dynadiag-runs/latest#g3
"""


Kind = Literal[
    "compile_error",
    "runtime_error",
    "crash",
    "hang",
    "oom",
    "wrong_result",
    "wrong_gradient",
    "wrong_mutation",
    "nan",
    "graph_break",
    "recompile",
    "fallback",
    "cudagraph_skip",
    "wrong_call",
]
Level = Literal["auto", "dynamo", "aot"]


_Target = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET [ARGS]...",
        help="A failing script and its arguments; `-m MODULE [ARGS]`; a repro.py written by torch; RUN or RUN#g3 for recorded graphs.",
    ),
]
_Resume = Annotated[bool, typer.Option("--resume", help="Continue the interrupted reduction in --out DIR.")]
_Kind = Annotated[
    Kind | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help=f"The failure to look for: {', '.join(get_args(Kind))}. oom, nan, wrong_result, wrong_gradient and wrong_mutation check every "
        "graph; graph_break and those behind it reduce the script.",
    ),
]
_Match = Annotated[str | None, typer.Option("--match", metavar="REGEX", help="Only a failure whose text matches.")]
_Backend = Annotated[
    str | None, typer.Option("--backend", metavar="NAME", help="For RUN#ID: the backend to compile with [default: the recorded one].")
]
_AsScript = Annotated[
    bool,
    typer.Option("--as-script", help="Run torch's repro.py as an ordinary script, instead of parsing it."),
]
_MemoryLimit = Annotated[
    int | None,
    typer.Option(
        "--memory-limit",
        metavar="MIB",
        min=1,
        max=1 << 40,
        help="For oom: the memory that one run of the graph may use on top of torch itself.",
    ),
]
_Ablation = Annotated[
    bool | None,
    typer.Option(
        "--ablation/--no-ablation",
        help="Run the result with each layer of the compiler, for the table in report.md [default: only those that the answer needs].",
    ),
]
_Level = Annotated[
    Level,
    typer.Option("--level", help="The graph to end with: Dynamo's, AOTAutograd's (aot), or the simpler of the two that is proven."),
]
_Capture = Annotated[
    Literal["failing", "always"],
    typer.Option("--capture", help="failing: a second run captures what failed; always: a single run saves every graph at every call."),
]
_Bisect = Annotated[bool, typer.Option("--bisect/--no-bisect", help="Look for the guilty compiler pass, and for an option that helps.")]
_Jobs = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", min=1, max=64, help="Candidates tested in parallel [default: half the cores, at most 4]."),
]
_Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="S", min=1, max=LONGEST_S, help="Seconds for the script, and for its graph; longer counts as a hang."
    ),
]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only, no progress.")]
_Python = Annotated[
    str | None,
    typer.Option("--python", metavar="PATH", help="The Python interpreter for the script and everything else; it must have dynadiag."),
]


def minify(
    ctx: typer.Context,
    target: _Target,
    out: Out = None,
    force: Force = False,
    resume: _Resume = False,
    kind: _Kind = None,
    match: _Match = None,
    backend: _Backend = None,
    as_script: _AsScript = False,
    memory_limit_mib: _MemoryLimit = None,
    ablation: _Ablation = None,
    level: _Level = "auto",
    capture: _Capture = "failing",
    bisect: _Bisect = True,
    jobs: _Jobs = None,
    timeout_s: _Timeout = 300.0,
    outputs: Outputs = "discard",
    quiet: _Quiet = False,
    python: _Python = None,
    open_report: Open = False,
) -> None:
    """Find the failing compile or call of a script and reduce its graph to the smallest reproducer.

    The script runs twice: once to find what fails, once to capture that graph with its real inputs (`--capture always` does both in one
    run). The result is `repro_min.py`, one file that needs torch alone, proven in fresh processes; `minify.json` has the details. Exit
    status: 0 reduced and proven, 1 nothing failed or not proven, 2 usage, 130 interrupted: the best result so far was written.
    """
    from dynadiag.record import Target
    from dynadiag.record.guardian import guarded
    from dynadiag.reduce.minification import minify_target
    from dynadiag.reduce.session import SessionOptions
    from dynadiag_cli.minify_output import Quiet, Terminal, report
    from dynadiag_cli.showing import command_line, open_page

    if python is not None:
        _go_on_in(python)
    guarded()
    options = SessionOptions(
        timeout_s=timeout_s,
        kind=kind,
        match=match,
        resume=resume,
        ablation=ablation,
        level=level,
        bisect=bisect,
        jobs=jobs,
        memory_limit_mib=memory_limit_mib,
        backend=backend,
        as_script=as_script,
        capture_always=capture == "always",
        keep_outputs=outputs == "all",
        command=command_line(),
    )
    program = Target("module" if ctx.meta.get(MODE) == "module" else "script", tuple(target))
    done = minify_target(program, out=out, force=force, options=options, watch=Quiet() if quiet else Terminal())
    report(done)
    if open_report:
        open_page(done.directory)
    sys.exit(done.exit_code)


def _go_on_in(python: str) -> None:
    """Become the same command in another interpreter, unless this is it: each question is a fork of a process with torch and dynadiag."""
    from dynadiag.torch_compat.versions import require_in

    found = shutil.which(python)
    if found is None:
        raise UsageError(f"--python: {python} cannot be started: there is no such interpreter")
    if Path(found).absolute() == Path(sys.executable).absolute():
        return
    require_in(found, "minify", oldest_python=(3, 11))
    asked = subprocess.run([found, "-c", "import dynadiag_cli"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if asked.returncode != 0:
        raise UsageError(f"--python: {python} cannot import dynadiag: minify runs there as a whole, so install it there")
    words = sys.argv[1:]
    at = next(number for number, word in enumerate(words) if word.split("=")[0] == "--python")
    del words[at : at + (1 if "=" in words[at] else 2)]
    os.execv(found, [found, "-m", "dynadiag", *words])
