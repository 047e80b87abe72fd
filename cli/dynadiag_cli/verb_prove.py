"""`dynadiag prove`: whether anybody's edit of a program changes no result, and what torch.compile makes of both versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dynadiag.errors import OutputError, UsageError
from dynadiag_cli.command_line import MODE
from dynadiag_cli.options import AsFormat, InColor, Quiet

if TYPE_CHECKING:
    from dynadiag.fix.given_edits import Edit

Outputs = Literal["discard", "all"]
EXAMPLES = """Examples:

  dynadiag prove --patch faster.patch train.py --lr 3e-4

  dynadiag prove --against old.py new.py
"""


def prove(
    ctx: typer.Context,
    target: Annotated[list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="The program: a script or -m MODULE, with arguments.")],
    patch: Annotated[
        Path | None, typer.Option("--patch", metavar="FILE", help="The edit is this unified diff; SCRIPT is the program without it.")
    ] = None,
    git: Annotated[
        str | None, typer.Option("--git", metavar="REV", help="The edit is what the working tree has changed since this git revision.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option("--against", metavar="OLD", help="The edit makes SCRIPT of this script, in whose place it runs.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write prove.json and prove.md into this folder.")] = None,
    outputs: Annotated[Outputs, typer.Option("--outputs", help="Files that the runs write: discard them, or keep all.")] = "discard",
    yes: Annotated[bool, typer.Option("--yes", help="Also run a script that connects to a network: every run connects.")] = False,
    output_format: AsFormat = "text",
    quiet: Quiet = False,
    color: InColor = "auto",
) -> None:
    """Run a program before and after an edit, in eager and compiled, and say whether anything that both compute differs.

    Compared are how it ends, what it prints, the parameters, optimizers, attributes and global values that it has at its end, and the
    calls of callables that both versions compile: on the program's own data, with other random seeds, and on other data. Nothing of yours
    is changed. Exit status: 0 proven, 1 not proven, 2 usage, 3 no torch, 5 nothing was compiled.
    """
    from dynadiag.fix.edit_proof import baseline_for
    from dynadiag.fix.edit_proof import prove as proven
    from dynadiag.fix.edit_result import document_of
    from dynadiag.record.guardian import guarded
    from dynadiag.torch_compat.versions import require
    from dynadiag_cli.progress import PRINT_S, StatusLine
    from dynadiag_cli.showing import json_of, show, write_result
    from dynadiag_cli.verb_fix import apart_from

    guarded()
    edit, module, arguments = _edit(ctx, target, patch, git, against)
    if out is not None and out.exists() and not out.is_dir():
        raise OutputError(f"{out} is not a folder")
    require("prove")
    line = StatusLine(PRINT_S)
    with apart_from(edit.script, Path.cwd(), discard=outputs == "discard", yes=yes) as apart:
        try:
            with line.ticking():
                result = proven(edit, baseline_for(edit.script, arguments, module=module), line.draw, apart)
        finally:
            line.wipe()
    if out is not None:
        write_result(out, "prove", json_of(result), document_of(result), make=True)
    show(document_of(result), output_format, json=lambda: json_of(result), default=sys.stdout, color=color, quiet=quiet)
    raise typer.Exit(0 if result.proven else 1)


def _edit(
    ctx: typer.Context, target: list[str], patch: Path | None, git: str | None, against: Path | None
) -> tuple[Edit, str | None, tuple[str, ...]]:
    """The edit, the module's name where one is run, and the program's arguments. What may be refused comes before anything runs."""
    from dynadiag.fix.baseline import check_script, script_of_module
    from dynadiag.fix.given_edits import edit_against, edit_of_patch, edit_since_revision

    if sum(given is not None for given in (patch, git, against)) != 1:
        raise UsageError("say what the edit is: --patch FILE, --git REV or --against OLD.py, one of them")
    mode = ctx.meta.get(MODE, "path")
    if mode == "command":
        raise UsageError("prove runs one process: pass a script or -m MODULE, not a launcher")
    module = target[0] if mode == "module" else None
    if module is not None:
        script = script_of_module(module, Path.cwd())
    else:
        script = Path(target[0])
        check_script(script)
    if patch is not None:
        edit = edit_of_patch(patch, script)
    elif git is not None:
        edit = edit_since_revision(git, script)
    elif against is not None:
        if module is not None:
            raise UsageError("--against compares scripts: leave -m out")
        check_script(against)
        edit = edit_against(against, script)
    return edit, module, tuple(target[1:])
