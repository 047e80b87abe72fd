"""Makes the JSON Schemas in docs/ from the dataclasses and typed dicts that the files are made of: `python docs/site/schemas.py`.

msgspec translates the types. What is ours: descriptions and limits (`dynadiag/model/json_keys.py`), names of objects, open enums (a list of
words may grow, so a reader must not rely on it), and the rule that what is null has its reason beside it.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "cli")]

from dynadiag.model.json_keys import NO_REASON, NOT_WRITTEN, Bounds, KeysOf, ReasonIn, WrittenAs  # noqa: E402

_WIDTH = 120
_REASON = "dynadiag-reason"
_CONTAINERS: dict[Any, Any] = {Mapping: dict, Sequence: list, Iterable: list, frozenset: list}


class _Translation:
    """The types of one document as dataclasses that msgspec makes a schema of."""

    def __init__(self, *, closed: bool) -> None:
        self.closed = closed
        self.made: dict[tuple[Any, ...], type] = {}
        self.orders: dict[str, list[str]] = {}

    def type_of(self, hint: Any) -> Any:
        """The type as msgspec takes it: with descriptions and limits, and with our classes replaced."""
        if isinstance(hint, KeysOf):
            return self.object_of(hint.classes, hint.reasons, hint.name)
        if is_dataclass(hint) or is_typeddict(hint):
            return self.object_of((hint,))
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._annotated(*inner)
        if origin is Literal:
            return hint if self.closed or not isinstance(inner[0], str) else str
        if origin in (Union, types.UnionType):
            return Union[tuple(self.type_of(part) for part in inner)]  # noqa: UP007 - of a number of types
        if origin is None:
            return hint
        inner = tuple(part if part is Ellipsis else self.type_of(part) for part in inner)
        return _CONTAINERS.get(origin, origin)[inner]

    def _key(self, hint: Any) -> Any:
        """The type of a key, which may be one that is not always there; None for a field that is no key."""
        if get_origin(hint) is NotRequired:
            return NotRequired[self.type_of(get_args(hint)[0])]
        return None if NOT_WRITTEN in get_args(hint) else self.type_of(hint)

    def _annotated(self, plain: Any, *extras: Any) -> Any:
        words: dict[str, Any] = {}
        for extra in extras:
            if isinstance(extra, str):
                words["description"] = extra
            elif isinstance(extra, Bounds):
                words |= {name: value for name, value in asdict(extra).items() if value is not None}
            elif extra is NO_REASON or isinstance(extra, ReasonIn):
                words["extra_json_schema"] = {_REASON: "" if extra is NO_REASON else extra.key}
            elif not isinstance(extra, WrittenAs):
                plain = extra
        made = self.type_of(plain)
        return Annotated[made, msgspec.Meta(**words)] if words else made

    def object_of(self, classes: tuple[Any, ...], reasons: tuple[str, ...] = (), name: str = "") -> type:
        """An object with the keys of all the classes."""
        known = self.made.get((classes, reasons))
        if known is None:
            hints = {key: hint for each in classes for key, hint in get_type_hints(each, include_extras=True).items()}
            rare = {key for each in classes for key in getattr(each, "__optional_keys__", ())}  # of a class with `total=False`
            hints = {key: NotRequired[hint] if key in rare else hint for key, hint in hints.items()}
            hints |= {f"{key}_why": str | None for key in reasons}
            name = name or _name_of(classes[0])
            if name in {each.__name__ for each in self.made.values()}:
                raise ValueError(f"two objects of one document are called {name}")
            made = {_written_as(key, hint): kind for key, hint in hints.items() if (kind := self._key(hint)) is not None}
            known = TypedDict(name, made)  # type: ignore[operator]
            self.orders[name] = list(made)
            known.__doc__ = " ".join((inspect.getdoc(classes[0]) or "").split("\n\n")[0].split())
            self.made[(classes, reasons)] = known
        return known


def _written_as(key: str, hint: Any) -> str:
    return next((extra.key for extra in get_args(hint) if isinstance(extra, WrittenAs)), key)


def _name_of(kind: type) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__.removesuffix("Keys")).lower()


def schema_of(name: str, *kinds: Any, title: str, closed: bool = False) -> dict[str, Any]:
    """The schema of a document, which is one of `kinds`; `closed` keeps the words of enums."""
    translation = _Translation(closed=closed)
    tops, parts = msgspec.json.schema_components([translation.type_of(kind) for kind in kinds])
    parts = {part: _finished(schema, translation.orders[part]) for part, schema in parts.items()}
    made: dict[str, Any] = {"oneOf": list(tops)} if len(kinds) > 1 else parts.pop(tops[0]["$ref"].rpartition("/")[2])
    heading = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{name}.schema.json", "title": title}
    return heading | made | ({"$defs": dict(sorted(parts.items()))} if parts else {})


def _finished(schema: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """An object of the schema as it is published: its keys in their order, with the rule for what is null."""
    schema = _cleaned(schema)
    keys = {name: schema["properties"][name] for name in order}  # msgspec sorts them
    schema |= {"properties": keys, "required": [name for name in order if name in schema.get("required", ())]}
    rules = [rule for name in keys if (rule := _reason_rule(name, keys, schema["required"])) is not None]
    if not rules:
        return schema
    return schema | {"allOf": rules}


def _reason_rule(name: str, keys: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any] | None:
    """Where `name` is null, its reason is there: in `<name>_why`, else by its name in `unknown`."""
    why = keys[name].pop(_REASON, f"{name}_why")
    if not why or not _may_be_null(keys[name]):
        return None
    condition = {"properties": {name: {"type": "null"}}, "required": [name]}
    if why in keys:
        return {"if": condition, "then": {"properties": {why: {"type": "string", "minLength": 1}}, "required": [why]}}
    if "unknown" in required:
        return {"if": condition, "then": {"properties": {"unknown": {"required": [name]}}}}
    return None


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    return any(part == {"type": "null"} for part in schema.get("anyOf", ()))


def _cleaned(value: Any, *, names: bool = False) -> Any:
    """Without what only Python knows of: titles of classes and defaults. `names`: the keys are those of an object, not of a schema."""
    if isinstance(value, list):
        return [_cleaned(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _cleaned(part, names=key in ("properties", "$defs") and not names)
        for key, part in value.items()
        if names or key not in ("title", "default")
    }


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema with its name."""
    from dynadiag.bench.json_keys import BenchFile
    from dynadiag.diff.result import DiffResult
    from dynadiag.diff.show import DiffKeys
    from dynadiag.fix.edit_result import ProveFile
    from dynadiag.fix.result import FixFile
    from dynadiag.gate.formats import CheckFile
    from dynadiag.numerics.result import NumericsFile
    from dynadiag.parity.result import ParityFile
    from dynadiag.reduce.reproducer.minify_keys import MinifyFile
    from dynadiag.render.report_keys import ReportFile
    from dynadiag.start.result import StartResult
    from dynadiag.start.show import StartKeys
    from dynadiag.sweep.compare import SweepComparison
    from dynadiag.sweep.show import HeadKeys, QueryKeys, SweepKeys, WorseKeys

    files = {
        "bench": BenchFile,
        "fix": FixFile,
        "minify": MinifyFile,
        "numerics": NumericsFile,
        "parity": ParityFile,
        "prove": ProveFile,
        "report": ReportFile,
    }
    for name, kind in files.items():
        yield name, schema_of(name, kind, title=f"{name}.json of dynadiag")
    yield "check", schema_of("check", CheckFile, title="The outcome of dynadiag check (--format json)")
    comparison = KeysOf((DiffKeys, DiffResult), name="comparison")
    yield "diff", schema_of("diff", comparison, title="The comparison of dynadiag diff (--format json)")
    starts = KeysOf((StartKeys, StartResult), name="starts")
    yield "start", schema_of("start", starts, title="What dynadiag start found (start.json, --format json)")
    sweeps = (
        KeysOf((HeadKeys, SweepKeys), name="sweep"),
        KeysOf((HeadKeys, QueryKeys), name="query"),
        KeysOf((HeadKeys, WorseKeys, SweepComparison), name="comparison"),
    )
    yield "sweep", schema_of("sweep", *sweeps, title="What dynadiag sweep prints with --format json", closed=True)


def published(schema: Mapping[str, Any]) -> str:
    """The text of a file in docs/."""
    return _text(schema, 0) + "\n"


def _text(value: Any, depth: int) -> str:
    """JSON with all that fits on a line on it."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + depth < _WIDTH or not isinstance(value, (dict, list)):
        return line
    begin = "\n" + " " * (depth + 1)
    if isinstance(value, list):
        return f"[{begin}" + f",{begin}".join(_text(part, depth + 1) for part in value) + f"\n{' ' * depth}]"
    rows = (f"{json.dumps(key)}: {_text(part, depth + 1)}" for key, part in value.items())
    return f"{{{begin}" + f",{begin}".join(rows) + f"\n{' ' * depth}}}"


def path_of(name: str) -> Path:
    """Where the schema of a document is published."""
    return ROOT / "docs" / f"{name}.schema.json"


if __name__ == "__main__":
    for name, schema in documents():
        path_of(name).write_text(published(schema), encoding="utf-8")
