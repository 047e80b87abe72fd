"""What is to be compared, as a person asks for it: a script, a step, versions or variants; and the arms that come of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dynadiag.bench.arms import ArmSpec, ScriptCall, parse_arms, parse_variants, with_after
from dynadiag.bench.marks import marked_functions
from dynadiag.errors import UsageError
from dynadiag.revisions import RELATIVE, extract, file_in

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "horovodrun")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line of `bench` asks for, option by option; `arms` are separated by commas, the baseline first.

    `call` is the call of the script's compiled callable that is taken over (from 1), `shapes` the number of calls whose shapes are watched.
    `after` and `revision` name the other version of the program, `loop` the line of the loop whose iterations are compared.
    """

    file: Path | None = None
    arguments: tuple[str, ...] = ()
    function: str | None = None
    arms: str = "eager,default"
    call: int = 3
    chosen: str | None = None
    shapes: int | None = None
    variants: tuple[str, ...] = ()
    loop: int | None = None
    after: Path | None = None
    revision: str | None = None
    in_process: bool = False

    @property
    def versions(self) -> bool:
        """Whether two versions of a program are compared."""
        return self.after is not None or self.revision is not None


def planned(request: Request) -> tuple[str, tuple[ArmSpec, ...]]:
    """The step to time (`file.py:name`, `module:name` or a script) and its arms. Raises UsageError for what does not go together."""
    _refuse_launchers(request.file)
    if request.variants:
        where = _script(request)
        specs = parse_variants([*request.variants, *request.arguments], where, loop=request.loop)
    else:
        where = _step(request.file, request.function)
        taken = ScriptCall(
            arguments=request.arguments, call=request.shapes or request.call, chosen=request.chosen, shapes=request.shapes is not None
        )
        script = taken if where == str(request.file) else None
        least = 1 if request.versions else 2
        specs = parse_arms(request.arms, where, arguments=request.arguments, script=script, least=least)
        _refuse_together(request, script=script is not None)
    if request.shapes is not None and specs[0].script is None:
        raise UsageError("--shapes replays the calls of a script: pass a FILE without a marked function, and neither --fn nor --variants")
    if request.shapes is not None and request.versions:
        raise UsageError("--shapes: two versions of a program may be called with different shapes; leave out --after and --git")
    return where, specs


def before_and_after(
    specs: tuple[ArmSpec, ...], where: str, request: Request, folder: Path, say: Callable[[str], None]
) -> tuple[ArmSpec, ...]:
    """The arms, twice where two versions are compared; a git revision is written into `folder`, and what it lacks is said."""
    if request.after is not None and request.revision is not None:
        raise UsageError("--after and --git both name the other version: pass only one of them")
    if (after := request.after) is not None:
        if not after.is_file():
            raise UsageError(f"--after {after} {'is not a file' if after.exists() else 'does not exist'}")
        # Raises for what is no Python program.
        marked_functions(after)
        return with_after(specs, str(after) if specs[0].script else f"{after}:{where.rpartition(':')[2]}")
    if request.revision is None:
        return specs
    file = Path(where if specs[0].script else where.rpartition(":")[0])
    if file.is_absolute():
        raise UsageError(RELATIVE)
    copy = extract(request.revision, folder, here=Path.cwd())
    if file.suffix == ".py":
        file_in(copy, file, request.revision)
    for line in copy.missing:
        say(f"--git {request.revision}: {line}")
    return with_after(specs, where, before_folder=str(copy.here), instead_of=(str(copy.top), str(copy.files)))


def _refuse_together(request: Request, *, script: bool) -> None:
    if request.loop is not None:
        raise UsageError("--loop only works together with --variants")
    if request.in_process and request.versions:
        raise UsageError("--in-process: two versions of a program need separate processes")
    if request.in_process and script:
        raise UsageError("--in-process: a script can be taken over only once per process; mark its step with @dynadiag.benchmark")
    if request.chosen is not None and not script:
        raise UsageError("--callable chooses among a script's compiled callables; here the step is already named")


def _refuse_launchers(file: Path | None) -> None:
    """Scripts of several processes: an arm is one process, and its ranks could not wait for each other's turns."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size != "1":
        raise UsageError(f"bench compares single processes, but WORLD_SIZE={size[:20]!r} says that this is one of several: start it alone")
    if file is not None and file.suffix == ".ipynb":
        raise UsageError(f"{file} is a notebook: bench times a script, or a step that --fn or @dynadiag.benchmark names")
    if file is not None and file.name in _LAUNCHERS and not file.is_file():
        raise UsageError(f"bench compares single processes: {file.name} starts several; pass the script itself, to run as one process")


def _script(request: Request) -> str:
    """The script of which variants are compared."""
    if request.file is None or request.function or request.versions or request.in_process or request.chosen:
        raise UsageError(
            "--variants compares one script under different arguments: pass a file, and none of --fn, --after, --git, --in-process"
        )
    if not request.file.is_file():
        raise UsageError(f"{request.file} does not exist")
    return str(request.file)


def _step(file: Path | None, function: str | None) -> str:
    """What is timed: `file.py:name` or `module:name` for a step, the file alone for a script in which none is marked."""
    if function is not None and file is None:
        place, _, name = function.rpartition(":")
        if not place or not name:
            raise UsageError(f"--fn {function}: expected module:callable or file.py:callable")
        if not place.endswith(".py") and not all(part.isidentifier() for part in place.split(".")):
            raise UsageError(f"--fn {function}: {place} is neither a module's name nor a .py file")
        return function
    if file is None or function is not None:
        raise UsageError("pass either a file (a script, or one with a function marked @dynadiag.benchmark) or a step with --fn")
    if not file.is_file():
        raise UsageError(f"{file} does not exist" if not file.exists() else f"{file} is not a file")
    marked = marked_functions(file)
    if not marked:
        return str(file)
    if len(marked) > 1:
        raise UsageError(f"{file} has {len(marked)} marked functions; choose one: --fn {file}:{marked[0]}")
    return f"{file}:{marked[0]}"
