"""What of guards, graphs, breaks and collectives is the same on equal ranks: texts without ids, addresses and the rank's own device."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

_MOST_CODE = 2000
_MOST_VALUES = 64
_LONGEST_VALUE = 200
_LONGEST_REASON = 300
_DIGEST_BYTES = 8
_DAYS = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)  # of a leap year: only differences count
_STAMP = re.compile(rb"[A-Z](\d\d)(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)")
_LEAF = re.compile(rb"\n\t?[| ]*\+- ([A-Z][A-Z0-9_]*): ([^\n]*)")
_IDS = re.compile(rb"(___check_(?:type|obj)_id\([^\n]*), \d+\)")
# Both begin with the characters that they can begin with, which `re` looks for much faster than for a place between two words.
_ADDRESS = re.compile(rb"[0-9](?<![A-Za-z0-9][0-9])(?:(?<=0)x[0-9a-f]{6,}|\d{8,})\b")  # torch 2.11 has `__dtensor_spec_140040036409856`
_OWN_DEVICE = re.compile(
    rb"([cdhinx](?<!\w[cdhinx])(?:(?<=d)evice=|(?<=c)uda:|(?<=x)pu:|(?<=h)pu:|(?<=n)pu:|(?<=i)ndex=))\d{1,4}\b",
)
_COMMENT = re.compile(rb"(?<![ \t])[ \t]*#[^\n]*")
_BLANK = re.compile(rb"\n[ \t]*(?=\n)")
_COLLECTIVE = re.compile(
    rb'\n[ \t]*\w+(?:: "([^"\n]{0,200})")? = (?:torch\.ops\.)?'
    rb"([\w.]{0,100}(?:c10d|_functional_collectives|dtensor)[\w.]{0,100})\(([^\n]{0,500})"
)
_CONSTANT = re.compile(rb"'[^'\n]{0,100}'|(?<![\w.\[])-?\d{1,9}(?![\w.\]])|\[[\d, ]{0,200}\]")
_GROUP = re.compile(rb"'(\d{1,9}|[0-9a-f]{32,64})'")
# Guards whose code holds the value itself (`torch/_dynamo/guards.py`, 2.11 and 2.15).
_ON_VALUES = frozenset({"EQUALS_MATCH", "CONSTANT_MATCH", "LENGTH_CHECK", "DICT_LENGTH", "TRUE_MATCH", "FALSE_MATCH", "BOOL_MATCH"})
_BREAK_ID = re.compile(r"/gb/gb(\d{1,8})\.html")
_BREAK_PLACE = re.compile(r"Graph break in user code at ([^\n]*):(\d{1,9})")
_BREAK_REASON = re.compile(r"(?:Graph Break Reason: |Reason: (?:Unsupported: )?|\bUnsupported: )([^\n]*)")
_COUNTED = re.compile(r"(<eval_with_key>)\.\d+")  # how much torch.fx generated before, whatever for
_FILE_LINE = re.compile(r'\n *File "([^"\n]*)", line (\d{1,9})')

Groups = Callable[[bytes], bytes]


def mark_of(*parts: str | bytes) -> str:
    """A hash of texts that is the same in every Python process."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "replace")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def stamp_of(line: bytes) -> float | None:
    """Seconds since the beginning of the year out of the head of a record."""
    found = _STAMP.match(line)
    if found is None:
        return None
    month, day, hour, minute = (int(found[number]) for number in range(1, 5))
    return (_DAYS[(month - 1) % 12] + day) * 86400.0 + hour * 3600 + minute * 60 + float(found[5])


def untab(payload: bytes) -> bytes:
    """A payload as torch was given it: the tab in front of every line taken away."""
    if not payload.startswith(b"\t"):
        return payload
    if payload.count(b"\t") == payload.count(b"\n") + 1:  # no other tabs, as nearly always: two thirds of the time of a replacement
        return payload.translate(None, b"\t")
    return payload[1:].replace(b"\n\t", b"\n")


def short_path(file: str | None) -> str:
    """The end of a path: machines may have the program in different folders."""
    return "/".join(_COUNTED.sub(r"\1", file or "").replace("\\", "/").split("/")[-2:])


def break_mark(text: str) -> tuple[str, str]:
    """What broke the graph (torch's id, or the first line of the reason) and where, as " at FILE:LINE" or nothing."""
    found = _BREAK_ID.search(text)
    reason = _BREAK_REASON.search(text)
    first = reason[1] if reason else text.partition("\n")[0]
    kind = f"GB{found[1]}" if found else without_ids(first[:_LONGEST_REASON].strip().encode("utf-8", "replace")).decode("utf-8", "replace")
    place = _BREAK_PLACE.match(text)
    where = (place[1], place[2]) if place else next(iter(_FILE_LINE.findall(text)[-1:]), None)
    return kind, "" if where is None else f" at {short_path(where[0])}:{where[1]}"


def value_guards(leaves: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The codes of the first guards on constants and lengths among the leaves (kind and code) of a guard tree."""
    codes = (body.partition("  # ")[0].strip()[:_LONGEST_VALUE] for kind, body in leaves if kind in _ON_VALUES)
    return tuple(islice(codes, _MOST_VALUES))


def guards_mark(payload: bytes) -> tuple[int, tuple[str, ...], list[str | bytes]]:
    """How many guards a payload has, the codes of those on values, and what of all of them is compared."""
    leaves = _LEAF.findall(payload)
    values = value_guards((_text(kind), _text(body)) for kind, body in leaves if kind.endswith((b"_MATCH", b"_CHECK")))
    codes = {code.encode("utf-8", "replace") for code in values}
    sources = sorted(code.partition(" == ")[0] for code in values)
    return len(leaves), values, [b"\n".join(_bare_guards(leaves, codes)), *sources]


def guard_lines(payload: bytes) -> list[str]:
    """The guards of a payload as they are compared, with their values."""
    return [_text(bare_guard) for bare_guard in _bare_guards(_LEAF.findall(payload), set())]


def _bare_guards(leaves: Iterable[tuple[bytes, bytes]], without: set[bytes]) -> list[bytes]:
    """The guards in order, up to a length that no honest one has; all at once, since there are hundreds of thousands of short ones."""
    codes = ((kind, body.partition(b"  # ")[0].strip()) for kind, body in leaves)
    kept = [kind + b" " + code[:_MOST_CODE] for kind, code in codes if code not in without]
    return sorted(_without_ids(b"\n".join(kept)).split(b"\n")) if kept else []


def has_collectives(text: bytes) -> bool:
    """Whether a graph can hold a collective."""
    return b"c10d" in text or b"_collectives" in text


def bare_graph(text: bytes, group: Groups) -> bytes:
    """A graph without comments, empty lines and ids; `group` gives the name of a process group that all ranks share."""
    bare = _without_addresses(_BLANK.sub(b"", _COMMENT.sub(b"", text)) if b"#" in text else text)
    return _GROUP.sub(lambda found: group(found[1]), bare) if has_collectives(bare) else bare


def graph_lines(payload: bytes) -> list[str]:
    """The lines of a graph as they are compared, but for the names of process groups."""
    bare = _without_addresses(_BLANK.sub(b"", _COMMENT.sub(b"", payload)))
    return [line.strip() for line in _text(bare).split("\n") if line.strip()]


def collectives_in(text: bytes, group: Groups) -> Iterator[tuple[str, str]]:
    """The collectives of a graph in order: the name, and its shape with its constants."""
    for shape, target, arguments in _COLLECTIVE.findall(_COMMENT.sub(b"", text)):
        name = _text(target)
        name = (name[: -len(".default")] if name.endswith(".default") else name).rpartition(".")[2]
        if name != "wait_tensor":
            constants = b", ".join(_CONSTANT.findall(_GROUP.sub(lambda found: group(found[1]), arguments)))
            yield name, _text(_without_addresses(b" ".join((shape, constants))))


def without_ids(code: bytes) -> bytes:
    """The code of a guard, up to a length that no honest one has, also without the identities of types and objects."""
    return _without_ids(code[:_MOST_CODE])


def _without_ids(code: bytes) -> bytes:
    return _without_addresses(_IDS.sub(rb"\1)", code))


def _without_addresses(code: bytes) -> bytes:
    """Text of a guard or graph without addresses and without the number of the rank's own device."""
    return _ADDRESS.sub(b"*", _OWN_DEVICE.sub(rb"\1*", code))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
