"""Dynamo's names of what a guard looks at, as people write them: `x.size(0)` for `L['x'].size()[0]`, `self.lin.weight` for module paths.

The grammar is that of `Source.name` in `torch/_dynamo/source.py` (2.11 to 2.15); recompile texts have `L['x']` already reduced to `x`.
"""

from __future__ import annotations

import keyword
import re
from functools import lru_cache

_LOCAL = re.compile(r"L\[\s*(?P<quote>['\"])(?P<name>.*?)(?P=quote)\s*\]")
_GLOBAL = re.compile(r"G\[\s*(?P<quote>['\"])(?P<name>\w+)(?P=quote)\s*\]")
_HELD = r"\.(?:_(?:modules|parameters|buffers)|__dict__\[['\"]_(?:modules|parameters|buffers)['\"]\])"
_MEMBER = re.compile(_HELD + r"\[(?P<quote>['\"])(?P<name>[^'\"\]]*)(?P=quote)\]")
_SHAPE = re.compile(r"\.(?P<what>size|stride)\(\)\[(?P<index>\d+)\]")
_AS_TENSOR = re.compile(r"___as_tensor\((?P<inner>[^()]*)\)\.item\(\)")
_FROM_NUMPY = re.compile(r"___from_numpy\((?P<inner>[^()]*)\)")
_IMPORTED = re.compile(r"\b__import_(?P<name>\w+)\.(?=[A-Za-z_])")
# `GenericAttrSource` (`torch/_dynamo/source.py`): an attribute of an object whose class has a `__getattribute__` of its own.
_GENERIC = re.compile(r"\bobject\.__getattribute__\((?P<owner>[^()]{1,300}), (?P<quote>['\"])(?P<name>\w{1,100})(?P=quote)\)")
# A key of a dictionary by its number (`DictGetItemSource` of a `ConstDictKeySource`): the parameters in an optimizer's state, say.
_KEY = re.compile(r"list\((?:dict\.keys\([^()]*\)|[^()]*\.keys\(\))\)\[(\d+)\]")
_MOST_NESTED = 8
_ROOT = re.compile(r"[A-Za-z_]\w*")
_NAMED = re.compile(
    r"(?<![\w.])(?:[A-Za-z_][\w.\[\]'\"]*(?:\.(?:size|stride)\(\)\[\d+\]|\.storage_offset\(\))|[A-Za-z_]\w*(?:[.\[][\w.\[\]'\"]*)?)"
)
_NO_SOURCES = frozenset({"not", "and", "or", "Eq", "Ne", "Mod", "Max", "Min", "math", "True", "False", "None", "is", "in"})


def stripped(text: str) -> str:
    """The text with `L['x']` reduced to `x`, as torch itself does in its recompile reasons (`strip_local_scope`, `_dynamo/guards.py`)."""
    return _LOCAL.sub(lambda match: match["name"], text)


@lru_cache(maxsize=8192)  # each recompile names the sources of all earlier ones again
def readable(source: str) -> str:
    """The source as a person would write it in the program; parts that have no such spelling stay as they are."""
    text = _AS_TENSOR.sub(lambda match: match["inner"], _FROM_NUMPY.sub(lambda match: match["inner"], stripped(source.strip())))
    for _ in range(_MOST_NESTED):
        text, found = _GENERIC.subn(lambda match: f"{match['owner']}.{match['name']}", text)
        text, keys = _KEY.subn(r"key \1", text)
        if not found and not keys:
            break
    text = _SHAPE.sub(lambda match: f".{match['what']}({match['index']})", text)
    text = _MEMBER.sub(lambda match: _member(match["name"]), text)
    return _IMPORTED.sub(_module, _GLOBAL.sub(lambda match: match["name"], text))


def _module(match: re.Match[str]) -> str:
    """`kit.parts.` for `__import_kit_dot_parts.`, torch's name of a module whose global a callee reads; nothing for the script itself."""
    return "" if match["name"] == "__main__" else f"{match['name'].replace('_dot_', '.')}."


def _member(name: str) -> str:
    if name.isdigit():
        return f"[{name}]"
    return f".{name}" if name.isidentifier() and not keyword.iskeyword(name) else f"[{name!r}]"


def is_global(source: str) -> bool:
    """True for a variable of a module (`G['name']`)."""
    return bool(_GLOBAL.match(source.strip()))


def root_name(source: str) -> str | None:
    """The variable that a readable source starts at: `x` for `x.size(0)`."""
    match = _ROOT.match(source.strip())
    return match[0] if match else None


_SIZE = re.compile(r"(?P<tensor>.+)\.size\((?P<index>\d+)\)")


def dimension(source: str) -> tuple[str, int] | None:
    """`("x", 0)` for `x.size(0)`: the tensor and its dimension; None for every other source."""
    match = _SIZE.fullmatch(source)
    return None if match is None else (match["tensor"], int(match["index"]))


@lru_cache(maxsize=8192)
def named_in(text: str) -> tuple[str, ...]:
    """The sources that a condition such as `2 <= x.size()[0] <= 6` speaks of, readable, in order."""
    found = _NAMED.findall(_AS_TENSOR.sub(lambda match: match["inner"], text))
    return tuple(dict.fromkeys(readable(item) for item in found if item.split(".")[0] not in _NO_SOURCES))
