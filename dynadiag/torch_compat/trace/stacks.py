"""The stack of the user's program as plain data, and the exception that ended it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import os
import re
import stat
import sys
import textwrap
import tokenize
import traceback
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType, TracebackType
from typing import Any

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_state import SETTERS

_DEPTH = 40
_ENTRY_DEPTH = 100
_MAX_SOURCE_BYTES = 20_000_000
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep  # noqa: PTH100, PTH120
_OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120


def place(file: str, line: int | None, function: str | None) -> dict[str, Any]:
    """One place {file, line, function, code}; the code is the source line as it can be read now."""
    return {"file": file, "line": line, "function": function, "code": _code_at(file, line) if line else None}


def _code_at(file: str, line: int) -> str | None:
    """A source line, from what `linecache` already holds or from the file; `linecache` itself may call the program's loaders."""
    lines = _held_lines(file)
    return (lines[line - 1].strip() or None) if 0 < line <= len(lines) else None


def _held_lines(file: str) -> list[str]:
    held = linecache.cache.get(file)
    return held[2] if held is not None and len(held) == 4 else _lines_of(file)


_LINES_AFTER = 40
_LINES_OF_FUNCTION = 120
_NAMED_PLACE = re.compile(r'^ *File "([^"\n]+)", line (\d{1,7})', re.MULTILINE)
_MOST_TEXT = 6_000
_MOST_IMPORTS = 60
_GOES_ON = ("except", "else:", "finally:", ")", "]", "}", "#")


def statements_named_in(text: str) -> list[dict[str, Any]]:
    """The source {file, line, text} of each own line that a message of torch names, to the end of its block (at most 40 lines), of the
    function around it (at most 120), and the imports of its file (at most 60); in code of no function, of each `try` and `with` around it.
    """
    found = []
    for file, number in dict.fromkeys(_NAMED_PLACE.findall(text)):
        if is_library(file):
            continue
        begins = _function_around(file, int(number))
        blocks = ((int(number), _block_at(file, int(number))), (begins, _block_at(file, begins, _LINES_OF_FUNCTION)), _imports(file))
        around = () if begins else _catching(file, int(number))
        found += [{"file": file, "line": line, "text": block} for line, block in (*blocks, *around) if block]
    return found


def _catching(file: str, line: int) -> Iterator[tuple[int, str]]:
    """The first lines and the texts of the `try` and `with` statements around a line: they may catch what a call in them raises."""
    lines = _held_lines(file)
    for begin, text in _openers(file, line, _MOST_LINES):
        if text.startswith(("try:", "with ")):
            own = len(lines[begin - 1]) - len(text)
            rows = [lines[begin - 1]]
            for row in lines[begin : begin + _MOST_LINES]:
                inner = row.lstrip()
                if inner.strip() and len(row) - len(inner) <= own and not inner.startswith(_GOES_ON):
                    break
                rows.append(row)
            yield begin, "\n".join(row.rstrip()[own:] if not row[:own].strip() else row.strip() for row in rows).rstrip()[:_MOST_TEXT]


def imports_of(file: str) -> dict[str, Any] | None:
    """The imports {file, line, text} of an own file outside of functions, one on each row; None for a library, and where there are none."""
    line, text = (0, "") if is_library(file) else _imports(file)
    return {"file": file, "line": line, "text": text} if line else None


@functools.lru_cache(maxsize=256)
def _imports(file: str) -> tuple[int, str]:
    """The line of a file's first import, and its imports outside of functions, each joined to one row."""
    lines = _held_lines(file)
    found = [number for number, row in enumerate(lines, start=1) if row.startswith(("import ", "from "))]
    return (found[0], "\n".join(_import_at(lines, number) for number in found[:_MOST_IMPORTS])) if found else (0, "")


def _import_at(lines: Sequence[str], number: int) -> str:
    """The import that begins on a line, with what its brackets hold on the lines below."""
    row, *below = (line.partition("#")[0].strip() for line in lines[number - 1 : number + _LINES_AFTER])
    if "(" not in row:
        return lines[number - 1].rstrip()
    for more in below if ")" not in row else ():
        row += f" {more}"
        if ")" in more:
            break
    return row


def function_at(file: str, line: int) -> str:
    """The source of an own function from its first line (or decorator) on, at most 120 lines; "" where it cannot be read."""
    return "" if is_library(file) else _block_at(file, line, _LINES_OF_FUNCTION)


def _function_around(file: str, line: int, most: int = _LINES_OF_FUNCTION) -> int:
    """The line of the innermost `def` around a line, at most so many lines up; 0 where there is none."""
    return next((number for number, text in _openers(file, line, most) if text.startswith(("def ", "async def "))), 0)


def _openers(file: str, line: int, most: int) -> Iterator[tuple[int, str]]:
    """The lines, innermost first, that open the blocks around a line, by indentation."""
    lines = _held_lines(file)
    if not 0 < line <= len(lines):
        return
    margin = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    for number in range(line - 1, max(0, line - most), -1):
        text = lines[number - 1].lstrip()
        own = len(lines[number - 1]) - len(text)
        if text.strip() and own < margin and not text.startswith((")", "]", "}", "#")):
            yield number, text
            margin = own


_CHANGED_STATE = re.compile(r"GLOBAL_STATE changed: ([\w() ]*)")
_MOST_SETTING = 20


def lines_that_set_state(reasons: str, stack: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines {file, line, text} of the user's files on a stack that may set a state of torch that these recompile reasons name."""
    changed = {name for names in _CHANGED_STATE.findall(reasons) for name in names.split()}
    setters = sorted({setter for name in changed for setter in SETTERS.get(name, ())})
    if not setters:
        return []
    sets = re.compile(rf"(?<!\w)(?:{'|'.join(setters)})\(")
    files = dict.fromkeys(record["file"] for record in stack if not is_library(record["file"]))
    rows = ((file, number, row.strip()) for file in files for number, row in enumerate(_held_lines(file), start=1) if sets.search(row))
    found = [{"file": file, "line": number, "text": row} for file, number, row in rows if not row.startswith(("#", "def "))]
    return found[:_MOST_SETTING]


_LINES_UP = 5_000
_MOST_LINES = 400
_MOST_FUNCTION_TEXT = 30_000
_DEFINES = re.compile(r"(?:async\s+)?def\s+(\w+)|class\s+(\w+)")


def functions_named_in(texts: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The source {file, line, name, text} of each own function that a printed stack goes through; one entry a function."""
    places = dict.fromkeys(place for text in texts for place in _NAMED_PLACE.findall(text))
    begins = dict.fromkeys((file, _begin_around(file, int(number))) for file, number in places if not is_library(file))
    return (record for file, line in begins if (record := whole_function(file, line)) is not None)


def innermost_own_function(stack: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The source {file, line, name, text} of the function that the innermost own place of a stack is in; nothing for module code."""
    place = next((item for item in reversed(stack) if not is_library(item["file"])), None)
    if place is not None and (record := whole_function(place["file"], _begin_around(place["file"], place["line"]))) is not None:
        yield record


def innermost_own_statement(stack: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The source {file, line, text} of the statement around the innermost own place of a stack, in module code where it has several lines.

    Brackets are counted, nothing is parsed: one in a string may give some lines more or none.
    """
    place = next((item for item in reversed(stack) if not is_library(item["file"])), None)
    if place is None or place["function"] != "<module>":
        return
    file, line = place["file"], place["line"]
    begin = line
    for number, text in _openers(file, line, _LINES_AFTER):
        if _opened(text) <= 0:
            break
        begin = number
    depth, rows = 0, _held_lines(file)[begin - 1 : begin + _LINES_AFTER] if begin != line else []
    for at, row in enumerate(rows):
        depth += _opened(row)
        if depth <= 0 and begin + at >= line:
            yield {"file": file, "line": begin, "text": textwrap.dedent("".join(rows[: at + 1])).rstrip()[:_MOST_TEXT]}
            return


def _opened(row: str) -> int:
    return sum(row.count(name) for name in "([{") - sum(row.count(text) for text in ")]}")


@functools.lru_cache(maxsize=4096)
def _begin_around(file: str, line: int) -> int:
    return _function_around(file, line, _LINES_UP)


def whole_function(file: str, line: int) -> dict[str, Any] | None:
    """The source {file, line, name, text} of the own function at a line, which may be its decorator's; at most 400 lines, dedented.

    None for code of a library, for what is no `def`, and where the source cannot be read. `name` is qualified by the classes and functions
    around it, as `__qualname__` is but without `<locals>`.
    """
    return None if is_library(file) or line < 1 else _function_text(file, line)


def _function_text(file: str, line: int) -> dict[str, Any] | None:
    lines = _held_lines(file)
    begin = next((at for at in range(max(line, 1), min(line + 50, len(lines) + 1)) if _DEFINES.match(lines[at - 1].lstrip())), 0)
    if not begin or lines[begin - 1].lstrip().startswith("class"):
        return None
    own = len(lines[begin - 1]) - len(lines[begin - 1].lstrip())
    try:
        block = inspect.getblock(lines[begin - 1 : begin - 1 + _MOST_LINES])
    except (SyntaxError, IndentationError, tokenize.TokenError):
        return None
    around = [text for _, text in _openers(file, begin, _LINES_UP)]
    named = [match[1] or match[2] for text in (*reversed(around), lines[begin - 1].lstrip()) if (match := _DEFINES.match(text))]
    text = "\n".join(name.rstrip()[own:] if not name[:own].strip() else name.strip() for name in block)
    return {"file": file, "line": begin, "name": ".".join(named), "text": text[:_MOST_FUNCTION_TEXT]}


_MOST_STEPS = 8
_SETTINGS = ("_config.py", "config.py", "_settings.py", "settings.py", "_env.py", "env.py", "envs.py", "constants.py", "_constants.py")
_FROM_ENVIRONMENT = re.compile(r"(?:environ(?:\.get)?[ \t]*[\[(]|getenv[ \t]*\()\s*[\"'](\w{1,80})[\"']")
_ASSIGNED = re.compile(r"[ \t]*(?:self\.)?(\w{1,80})[ \t]*(?::[^=]{0,200})?=(?!=)")
_DYNAMO = f"{os.sep}torch{os.sep}_dynamo{os.sep}"


def library_functions_named_in(text: str) -> Iterator[dict[str, Any]]:
    """The source {file, line, name, text, environment} of the functions of libraries between an own line and a graph break, or an error.

    The innermost 8. `environment` are names that the package sets from a variable of the environment, or such variables in lower case.
    """
    places = _NAMED_PLACE.findall(_traced(text))
    last = next((number for number in range(len(places) - 1, -1, -1) if not is_library(places[number][0])), -1)
    for file, number in dict.fromkeys(places[last + 1 :][-_MOST_STEPS:]):
        begin = 0 if _DYNAMO in file or file.startswith("<") else _begin_around(file, int(number))
        if begin and (record := _function_text(file, begin)) is not None:
            yield {**record, "environment": _environment_names(file)}


def functions_traced_in(error: str) -> Iterator[dict[str, Any]]:
    """The source {file, line, name, text} of the own functions that an error of Dynamo's says were traced."""
    return functions_named_in((_traced(error),))


def _traced(text: str) -> str:
    """The printed stack of traced code in torch's text of a graph break or an error."""
    start = next((literal for literal in ("User code traceback:\n", "from user code:\n") if literal in text), None)
    return text.partition(start)[2].partition("\n\n")[0] if start else ""


@functools.lru_cache(maxsize=128)
def _environment_names(file: str) -> dict[str, str]:
    """What a file, and the files of settings beside it and at the root of its package, read from the environment."""
    folder = os.path.dirname(file)  # noqa: PTH120
    folders = [folder]
    while len(folders) < _MOST_STEPS and os.path.isfile(os.path.join(os.path.dirname(folder), "__init__.py")):  # noqa: PTH113, PTH118, PTH120
        folder = os.path.dirname(folder)  # noqa: PTH120
        folders.append(folder)
    files = [file, *(os.path.join(text, name) for text in folders for name in _SETTINGS)]  # noqa: PTH118
    found: dict[str, str] = {}
    for word in files:
        for row in _lines_of(word):
            for variable in _FROM_ENVIRONMENT.findall(row):
                target = _ASSIGNED.match(row)
                found.setdefault(target[1] if target else variable.lower(), variable)
    return found


_CALLED = re.compile(r"(?<![\w.])(?:self\.)?([A-Za-z_]\w*)\(")
_MOST_CALLED = 8


def functions_called_after(text: str) -> list[dict[str, Any]]:
    """The source {file, line, name, text} of functions of the same file that are called behind a line that a message of torch names.

    Only those of names with one `def` in the file, and at most eight.
    """
    found: dict[tuple[str, int], None] = {}
    for file, number in dict.fromkeys(_NAMED_PLACE.findall(text)):
        begin = 0 if is_library(file) else _begin_around(file, int(number))
        rows = _block_at(file, begin, _MOST_LINES).split("\n")[int(number) - begin + 1 :] if begin else []
        for name in _CALLED.findall("\n".join(rows)):
            at = _defined(file).get(name, ())
            if len(at) == 1 and at[0] != begin:
                found[file, at[0]] = None
    return [record for file, line in list(found)[:_MOST_CALLED] if (record := whole_function(file, line)) is not None]


@functools.lru_cache(maxsize=128)
def _defined(file: str) -> dict[str, list[int]]:
    """The lines of each `def` in a file, by name."""
    found: dict[str, list[int]] = {}
    for number, row in enumerate(_held_lines(file), start=1):
        if (match := _DEFINES.match(row.lstrip())) and match[1]:
            found.setdefault(match[1], []).append(number)
    return found


def _block_at(file: str, line: int, after: int = _LINES_AFTER) -> str:
    lines = _held_lines(file)
    if not 0 < line <= len(lines) or not lines[line - 1].strip():
        return ""
    own = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    kept: list[str] = []
    for word in lines[line - 1 : line + after]:
        if kept and word.strip() and len(word) - len(word.lstrip()) < own and not word.lstrip().startswith((")", "]", "}", "#")):
            break
        kept.append(word.rstrip()[own:] if not word[:own].strip() else word.strip())
    return "\n".join(kept).rstrip()[:_MOST_TEXT]


@functools.lru_cache(maxsize=128)
def _lines_of(file: str) -> list[str]:
    """The lines of a regular file that is Python source; else none. Read once: later the text may be newer than the code that runs."""
    try:
        status = os.stat(file)  # noqa: PTH116
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_SOURCE_BYTES:
            return []
        with tokenize.open(file) as text:
            return text.readlines()
    except (OSError, ValueError, SyntaxError, LookupError):
        return []


def place_of(code: CodeType) -> dict[str, Any]:
    """Where a code object begins."""
    return place(code.co_filename, code.co_firstlineno, qualified_name(code))


def qualified_name(code: CodeType) -> str:
    """The qualified name of a code object; its plain name on Python 3.10, where an older torch may run."""
    name: str = getattr(code, "co_qualname", code.co_name)
    return name


def calling_stack() -> list[dict[str, Any]]:
    """The stack from the program's entry down to the call that we watch, our own frames and the hook's left out; at most 40 frames."""
    frames: list[dict[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) < _DEPTH:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN_FOLDER) and code.co_name != "dynadiag_watch":
            frames.append(place(code.co_filename, frame.f_lineno, qualified_name(code)))
        frame = frame.f_back
    frames.reverse()
    return frames


def calling_line_like(pattern: str) -> dict[str, Any] | None:
    """The only line of the program's files on the stack that the regular expression matches; None where there is none, or several."""
    files = dict.fromkeys(frame["file"] for frame in calling_stack() if not is_library(frame["file"]))
    wanted = re.compile(pattern)
    found = [(file, number) for file in files for number, line in enumerate(_held_lines(file), 1) if wanted.search(line)]
    return place(*found[0], None) if len(found) == 1 else None


def entry_stack() -> list[dict[str, Any]]:
    """The callers of the frame that Dynamo compiles now, outermost first: the innermost 100, without Dynamo's and our own at the inner end.

    The frame itself is not among them. Empty when Dynamo is not compiling a frame in this thread.
    """
    torch = torch_folder()
    dynamo = os.path.join(torch, "_dynamo", "")  # noqa: PTH118
    frame = _caller_of_convert_frame(dynamo, torch)
    while frame is not None and frame.f_code.co_filename.startswith((dynamo, _OWN_FOLDER)):
        frame = frame.f_back
    frames: list[dict[str, Any]] = []
    while frame is not None and len(frames) < _ENTRY_DEPTH:
        frames.append(place(frame.f_code.co_filename, frame.f_lineno, qualified_name(frame.f_code)))
        frame = frame.f_back
    frames.reverse()
    return frames


def _caller_of_convert_frame(dynamo: str, torch: str) -> FrameType | None:
    """Who ran the frame that the innermost running `torch/_dynamo/convert_frame.py` was called for (2.11 to 2.15).

    On its way lie wrappers of Dynamo, `contextlib` and `torch/_utils_internal.py`. These may be callers too: its last frame counts.
    """
    entrance = dynamo + "convert_frame.py"
    between = (dynamo, torch + "_utils_internal.py", contextlib.__file__)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != entrance:
        frame = frame.f_back
    last = frame
    while frame is not None and frame.f_code.co_filename.startswith(between):
        if frame.f_code.co_filename == entrance:
            last = frame
        frame = frame.f_back
    return last.f_back if last is not None else None


def torch_folder() -> str:
    """Torch's own folder, with a separator at its end."""
    return os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or "torch") + os.sep  # noqa: PTH120


def is_library(file: str) -> bool:
    """Whether code is torch's, the standard library's, an installed package's or generated: what a person did not write here."""
    if file.startswith("<"):
        return not file.startswith(("<stdin>", "<ipython"))
    if file.startswith((torch_folder(), _STDLIB)):
        return True
    return f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file


_TEXT_LIMIT = 4000
_OF_CUSTOM_FUNCTION = re.compile(r"Output \d{1,6} of (\w{1,200}) is a view")


def custom_functions_named_in(text: str) -> Iterator[dict[str, Any]]:
    """The source {file, line, name, text} of `forward` of the `torch.autograd.Function` that an error of autograd names, if it is own."""
    named, torch = _OF_CUSTOM_FUNCTION.search(text), sys.modules.get("torch")
    waiting = [torch.autograd.Function] if named is not None and torch is not None else []
    while waiting:
        for subclass in type.__subclasses__(waiting.pop()):
            waiting.append(subclass)
            code = getattr(vars(subclass).get("forward"), "__func__", None)
            code = getattr(code, "__code__", None)
            if named is not None and subclass.__name__ == named[1] and isinstance(code, CodeType):
                found = whole_function(code.co_filename, code.co_firstlineno)
                yield from () if found is None else (found,)


def uncaught_exception() -> dict[str, Any] | None:
    """The exception that nobody caught as a `dynadiag_problem`, or None. Nothing is hooked: `sys.last_exc` is read at exit.

    Python sets it (3.12; `sys.last_value` before) when it prints an exception, in an interactive session for each one.
    """
    raised = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(raised, Exception):
        return None
    cause = raised.__cause__ or raised
    text = f"{type(cause).__name__}: {str(cause).strip()[:_TEXT_LIMIT]}"
    last = {} if cause is raised else {"raised": f"{type(raised).__name__}: {str(raised).strip()[:_TEXT_LIMIT]}"}
    return {"kind": "uncaught", "text": text, **last, "stack": stack_of(raised.__traceback__)}


def stack_of(trace: TracebackType | None) -> list[dict[str, Any]]:
    """The places of a traceback, outermost first; the innermost 100."""
    entries = [(frame, line) for frame, line in traceback.walk_tb(trace)]
    return [stacks.place(frame.f_code.co_filename, line, stacks.qualified_name(frame.f_code)) for frame, line in entries[-100:]]
