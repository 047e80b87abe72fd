"""Which lines are the user's own: the innermost frame of a stack outside site-packages, the standard library and torch.

Paths are text from a log that may come from another machine and system: they are compared, never opened.
"""

from __future__ import annotations

import functools
import posixpath
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeVar

from dynadiag.model.location import Location
from dynadiag.model.run import Frame, Run

_PACKAGES = re.compile(r"/(?:site-packages|dist-packages)/", re.IGNORECASE)  # any installed package, also from another environment
_STANDARD = re.compile(
    r"^<frozen "
    r"|/lib(?:64)?/python\d+(?:\.\d+)?t?/(?!(?:site|dist)-packages/)"  # POSIX
    r"|/python\d*/lib/(?!(?:site|dist)-packages/)"  # Windows
    r"|/lib(?:64)?/python\d+\.zip/",
    re.IGNORECASE,
)
# A torch checkout or a build tree, where torch is not below site-packages: `torch` followed by one of its own packages.
_TORCH_TREE = re.compile(
    r"/torch/(?:_[a-z]\w*|nn|optim|utils|autograd|distributed|fx|jit|ao|amp|cuda|cpu|func|fft|linalg|distributions|export|library|"
    r"compiler|overrides|functional|random|serialization|storage|testing|backends|masked|nested|onnx|package|profiler|quantization|"
    r"signal|sparse|special|multiprocessing|mps|mtia|xpu|accelerator|hub|torch_version|types)(?:\.py$|/)"
    r"|/(?:py)?torch(?:-[^/]*)?/torch/(?:__init__|_VF)\.py$"  # elsewhere these may be a user's package
)
_OURSELVES = re.compile(
    r"/dynadiag/(?:record|torch_compat|compare|shadow|reduce|bench|capture|fx|parity|pytest_plugin)/|/dynadiag/(?:api|import_watcher)\.py$|/dynadiag_cli/"
)
# Inductor's generated code: `torchinductor_<user>/ab/cab….py`, or the same two names below a cache folder of the user's choice.
_GENERATED = re.compile(r"/torchinductor_[^/]+/|/(?P<two>[a-z2-7]{2})/c(?P=two)[a-z2-7]{40,60}\.(?:main\.)?(?:py|cpp|cu)$")
# Code that a library compiled at run time has a name in angle brackets; these few are what a person typed.
_TYPED = re.compile(r"^<(?:stdin|string|console|ipython-input-[^>]*|input|doctest [^>]*)>$")
_MOST_ROOTS = 64
_RESUME = re.compile(r"^(?P<outer>(?:\S*\.)?)torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)(?:_\d+)?$")


Answer = TypeVar("Answer")


class _Places(NamedTuple):
    """What decides whose a file is: folders of libraries, the folders that the project names as its own, the programs that were started."""

    libraries: tuple[str, ...]
    own: tuple[str, ...]
    programs: frozenset[str]
    cwd: str


def of_last_run(find: Callable[[Run], Answer]) -> Callable[[Run], Answer]:
    """`find` with its answer for the last run kept, where many places ask the same of one run; the run itself is not kept."""
    last: list[tuple[weakref.ref[Run], Answer]] = []

    @functools.wraps(find)
    def known(run: Run) -> Answer:
        if not last or last[0][0]() is not run:
            last[:] = [(weakref.ref(run), find(run))]
        return last[0][1]

    return known


def normal_path(path: str) -> str:
    """The path with forward slashes, so that Windows paths compare like the others."""
    return path.replace("\\", "/") if "\\" in path and (path[1:2] == ":" or "/" not in path) else path


def is_own_file(file: str, run: Run) -> bool:
    """True if the file is neither installed, nor of the standard library, nor torch's, nor ours.

    The recorded prefixes of the interpreter decide first, and the packages that were found elsewhere; the general patterns cover logs
    without them and further environments. Where the project names its own folders (`[tool.dynadiag]`), the user's code is what lies in them
    and in no library below them, and the program itself.
    """
    return _judge(_places(run))(file)


@of_last_run
def _places(run: Run) -> _Places:
    programs = (normal_path((process.argv or ("",))[0]) for process in run.processes[:_MOST_ROOTS]) if run.info.own else ()
    return _Places(
        libraries=tuple(map(_folder, (*run.site_prefixes, *run.libraries, *run.info.libraries))),
        own=tuple(map(_folder, run.info.own)),
        programs=frozenset(programs) - {"", "-c", "-m"},
        cwd=_folder(run.info.cwd or ""),
    )


def _folder(path: str) -> str:
    return normal_path(path).rstrip("/")


@functools.lru_cache(maxsize=16)
def _judge(places: _Places) -> Callable[[str], bool]:
    """`is_own_file` for runs with these places; the same few files are asked for tens of thousands of times."""
    return functools.lru_cache(maxsize=4096)(lambda file: _is_own(normal_path(file), places))


def _is_own(path: str, places: _Places) -> bool:
    if not path or path.startswith("<"):
        return bool(_TYPED.match(path))
    if not places.own:
        return not any(_below(path, library) for library in places.libraries) and not _looks_foreign(path)
    whole = path if path.startswith("/") or path[1:2] == ":" else f"{places.cwd}/{path}"
    named = max((len(name) for name in places.own if _below(whole, name)), default=0)
    installed = max((len(word) for word in places.libraries if _below(whole, word)), default=0)
    if named:
        return named >= installed and not _looks_foreign(whole[named:])
    return (path in places.programs or whole in places.programs) and not installed and not _looks_foreign(whole)


def _looks_foreign(path: str) -> bool:
    slashed = path if path.startswith("/") else f"/{path}"
    return any(pattern.search(slashed) for pattern in (_PACKAGES, _STANDARD, _TORCH_TREE, _OURSELVES, _GENERATED))


def is_own_branch(place: Location | None, run: Run) -> bool:
    """Whether a place is an `if` of the user's own code: where a tensor decides it, `dynadiag fix` tries to write it without a branch."""
    return place is not None and place.line is not None and is_own_file(place.file, run) and (place.code or "").startswith("if ")


def is_generated(place: Location) -> bool:
    """True for a method that a library wrote as text: `__init__` of a dataclass has the file `<string>`."""
    return place.file == "<string>" and re.fullmatch(r"(?:\w+\.)*(?:__\w+__|__create_fn__.*)", place.function or "") is not None


def is_torchs_file(file: str) -> bool:
    """True for a file of torch itself, installed or in a checkout."""
    path = normal_path(file)
    return "/site-packages/torch/" in path or "/dist-packages/torch/" in path or _TORCH_TREE.search(path) is not None


def is_standard_library(file: str) -> bool:
    """True for a file of Python's standard library, which lies in the same folder as installed packages."""
    path = normal_path(file)
    return _STANDARD.search(path if path.startswith(("/", "<")) else f"/{path}") is not None


def _below(path: str, prefix: str) -> bool:
    prefix = prefix.rstrip("/")
    return bool(prefix) and (path == prefix or path.startswith(f"{prefix}/"))


def own_frame(stack: Sequence[Location], run: Run) -> Location | None:
    """The innermost frame of the user's own code (stacks run from the outermost frame to the innermost), or None if there is none."""
    is_own = _judge(_places(run))
    for location in reversed(stack):
        if is_own(location.file):
            return location
    return None


def callers(frame: Frame) -> tuple[Location, ...]:
    """The callers of a compiled frame, outermost first: all of them where dynadiag recorded the run, else what torch recorded."""
    return frame.callers or frame.stack


def entry_stack(frame: Frame) -> tuple[Location, ...]:
    """The callers of a compiled frame and the frame itself where its code begins."""
    return (*callers(frame), *(() if frame.file is None else (Location(frame.file, frame.line, frame.name),)))


def joined_stack(entry: Sequence[Location], inner: Sequence[Location]) -> tuple[Location, ...]:
    """The stack of an event, with the stack through which its frame was entered put before it when the event's begins at the frame.

    Torch records the stack of an exception from the compiled frame on, that of a graph break from the outermost frame on
    (`InstructionTranslatorBase.log_graph_break`, torch 2.11 and 2.15). The last frame of `entry` is the compiled frame itself.
    """
    if not inner or not entry:
        return tuple(inner or entry)
    complete = _same_call(entry[0], inner[0]) and entry[0].line == inner[0].line
    return tuple(inner) if complete or not _same_call(entry[-1], inner[0]) else (*entry[:-1], *inner)


def _same_call(location: Location, other: Location) -> bool:
    return location.file == other.file and source_function(location.function) == source_function(other.function)


def own_entry(frame: Frame, run: Run) -> Location | None:
    """The user's own code that a frame belongs to: the frame itself, else what called it, without a line where that is not certain.

    Torch leaves the two innermost callers out of the stack of `dynamo_start` (`log_dynamo_start`, `extract(skip=4)`, torch 2.11 and 2.15)
    and shows a function that goes on in a resume function at the line of its first break. Our own record (`Frame.callers`) is whole.
    """
    if frame.file is not None and is_own_file(frame.file, run):
        return Location(frame.file, frame.line, source_function(frame.name))
    found = own_frame(callers(frame), run)
    if found is None or frame.callers or _called_by_torch(frame, run):
        return found
    return Location(found.file, None, source_function(found.function))


def _called_by_torch(frame: Frame, run: Run) -> bool:
    """True if the two callers that torch left out cannot be the user's: `compile_wrapper` called the compiled object itself.

    That is so when it is the last caller recorded and no frame before was left to run eager in parts, from where user code could call on.
    """
    last = frame.stack[-1] if frame.stack else None
    if last is None or last.function != "compile_wrapper" or not normal_path(last.file).endswith("torch/_dynamo/eval_frame.py"):
        return False
    first_eager = _first_eager(run).get(frame.key.process)
    return first_eager is None or first_eager.id == frame.id or (first_eager.record or 0) > (frame.record or 0)


@of_last_run
def _first_eager(run: Run) -> Mapping[int, Frame]:
    """By process the first frame that was left to run eager, at least in parts."""
    return {frame.key.process: frame for frame in reversed(run.frames) if frame.outcome in ("broke", "skipped")}


def bare_name(function: str | None) -> str | None:
    """The function's own name, without the classes and functions around it: `forward` for `Net.forward`."""
    return None if function is None else function.rpartition(".")[2]


def source_function(name: str | None) -> str | None:
    """The function that a person wrote: `forward` for `torch_dynamo_resume_in_forward_at_12`, also when nested."""
    while name is not None and (match := _RESUME.match(name)):
        name = match["outer"] + match["name"]
    return name


def is_module_entry(file: str | None) -> bool:
    """True for the file of torch's wrapper `inner`, through which it enters a compiled nn.Module unless its class is the user's own."""
    return (file or "").replace("\\", "/").endswith("torch/_dynamo/external_utils.py")


def function_words(name: str | None, file: str | None) -> str:
    """A compiled function for a sentence: its name in backticks, words for torch's own entry and for what has no name."""
    if is_module_entry(file):
        return "the compiled module or callable"
    found = source_function(name)
    return f"`{found}`" if found else "a frame"


def resume_line(name: str | None) -> int | None:
    """The source line at which a resume function goes on, or None for other functions."""
    match = _RESUME.match(name or "")
    return None if match is None else int(match["line"])


def project_path(file: str, run: Run) -> str:
    """A path that is the same on another machine and from another folder: relative to the project of the program, or to site-packages.

    A file that lies in none of them is named by its last two parts. Where the project was not recorded (by an earlier
    dynadiag, in another tool's log), relative to the run's working directory or the script's folder.
    """
    path = normal_path(file)
    path = posixpath.normpath(path) if "/." in path else path
    installed = re.search(r".*/(?:site-packages|dist-packages|python\d+\.\d+t?)/(.+)$", path)
    if installed:
        return installed[1]
    for folder, name in _names(run):
        if path == folder and name:
            return name
        if _below(path, folder) and path != folder:
            inside = path[len(folder.rstrip("/")) + 1 :]
            return f"{name}/{inside}" if name else inside
    return (
        "/".join(part for part in path.split("/") if part not in ("", ".", "..")) if path.count("/") < 2 else "/".join(path.split("/")[-2:])
    )


@of_last_run
def _names(run: Run) -> tuple[tuple[str, str], ...]:
    """The run's own folders and files with their names in the project, found in all processes and asked for once a place.

    Files first, then the outermost folder, so that the order of the processes does not matter; what is only around them comes last.
    """
    if run.project:
        known = sorted(run.project.items(), key=lambda pair: (not pair[1], len(pair[0]), pair))
        return tuple(
            (normal_path(path), normal_path(name)) for path, name in (*known, *((text, "") for text in sorted(run.around, key=len)))
        )
    roots = [run.info.cwd or ""]
    for process in run.processes:
        script = normal_path((process.argv or ("",))[0])
        if "/" in script and is_own_file(script, run):
            roots.append(script.rpartition("/")[0])
    return tuple((root, "") for root in islice(dict.fromkeys(normal_path(root) for root in roots if root.strip("/")), _MOST_ROOTS))


def full_place(place: Location, run: Run) -> Location | None:
    """The place with the whole path of its file, or None where the run does not tell which file is meant.

    In the comment of a guard torch leaves out what the path shares with its own folder, and the character after it
    (`shorten_filename` in `torch/utils/_traceback.py`, 2.6 to 2.15): `/home/me/proj/a.py` becomes `me/proj/a.py`, or `ome/me/proj/a.py`.
    """
    short = normal_path(place.file)
    if short.startswith(("/", "<")) or short[1:2] == ":":
        return place
    known = _known_files(run).get(short.rpartition("/")[2], ())
    if place.file in known:
        return place  # a script's own name is what the command line says, also `train.py`
    ends = [file for file in known if normal_path(file).endswith(short)]
    shared = {file: normal_path(file)[: -len(short)] for file in ends}
    possible = [file for file in ends if shared[file].endswith("/") or re.fullmatch(r"(?:\w:)?/[^/]", shared[file])]
    installed = [normal_path(prefix) for prefix in run.site_prefixes]
    likely = [file for file in possible if any(prefix.startswith(shared[file][:-1]) for prefix in installed)]
    found = likely if len(possible) > 1 else possible
    return replace(place, file=found[0]) if len(found) == 1 else None


@of_last_run
def _known_files(run: Run) -> Mapping[str, Sequence[str]]:
    """The files of the run's frames and stacks by their last part."""
    stacks = {id(stack): stack for frame in run.frames for stack in (frame.stack, frame.callers)}
    stacks |= {id(break_event.stack): break_event.stack for break_event in run.breaks} | {
        id(problem.stack): problem.stack for problem in run.problems
    }
    files = {location.file for stack in stacks.values() for location in stack} | {
        frame.file for frame in run.frames if frame.file is not None
    }
    known: dict[str, list[str]] = {}
    for file in sorted(files):
        known.setdefault(normal_path(file).rpartition("/")[2], []).append(file)
    return known
