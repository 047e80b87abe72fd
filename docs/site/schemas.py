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
from dataclasses import asdict, field, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "cli")]

from dynadiag.model.json_keys import NOT_WRITTEN, KeysOf, Limits  # noqa: E402

_CONTAINERS: dict[Any, Any] = {Mapping: dict, Sequence: list, Iterable: list, frozenset: list}


class _Translation:
    """The types of one document as dataclasses that msgspec makes a schema of."""

    def __init__(self, *, closed: bool) -> None:
        self.closed = closed
        self.made: dict[tuple[Any, ...], type] = {}

    def type_of(self, hint: Any) -> Any:
        """The type as msgspec takes it: with descriptions and limits, and with our classes replaced."""
        if isinstance(hint, KeysOf):
            return self.object_of(hint.classes, hint.reasons)
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

    def _annotated(self, plain: Any, *extras: Any) -> Any:
        words: dict[str, Any] = {}
        for extra in extras:
            if isinstance(extra, str):
                words["description"] = extra
            elif isinstance(extra, Limits):
                words |= {name: value for name, value in asdict(extra).items() if value is not None}
            else:
                plain = extra
        made = self.type_of(plain)
        return Annotated[made, msgspec.Meta(**words)] if words else made

    def object_of(self, classes: tuple[Any, ...], reasons: tuple[str, ...] = ()) -> type:
        """An object with the keys of all the classes."""
        known = self.made.get((classes, reasons))
        if known is None:
            hints = {key: hint for each in classes for key, hint in get_type_hints(each, include_extras=True).items()}
            hints |= {f"{key}_why": str | None for key in reasons}
            rows: list[tuple[str, Any, Any]] = []
            for key, hint in hints.items():
                optional = get_origin(hint) is NotRequired
                plain = get_args(hint)[0] if optional else hint
                if NOT_WRITTEN not in get_args(plain):
                    rows.append((key, self.type_of(plain), field(default=msgspec.UNSET) if optional else field()))
            name = _name_of(classes[0])
            doc = " ".join((inspect.getdoc(classes[0]) or "").split("\n\n")[0].split())
            known = make_dataclass(name, rows, kw_only=True, namespace={"__doc__": doc})
            if name in {each.__name__ for each in self.made.values()}:
                raise ValueError(f"two objects of one document are called {name}")
            self.made[(classes, reasons)] = known
        return known


def _name_of(kind: type) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__.removesuffix("Keys")).lower()


def schema_of(name: str, kind: Any, *, title: str, closed: bool = False) -> dict[str, Any]:
    """The schema of a document; `closed` keeps the words of enums."""
    top = _Translation(closed=closed).type_of(kind)
    (made,), parts = msgspec.json.schema_components([top])
    parts = {part: _finished(schema) for part, schema in parts.items()}
    if "$ref" in made:
        made = parts.pop(made["$ref"].rpartition("/")[2])
    heading = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{name}.schema.json", "title": title}
    return heading | made | ({"$defs": dict(sorted(parts.items()))} if parts else {})


def _finished(schema: dict[str, Any]) -> dict[str, Any]:
    """An object of the schema as it is published, with the rule for what is null."""
    schema = _cleaned(schema)
    keys = schema.get("properties", {})
    rules = [rule for name in keys if (rule := _reason_rule(name, keys, schema["required"])) is not None]
    if not rules:
        return schema
    return schema | {"allOf": rules}


def _reason_rule(name: str, keys: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any] | None:
    """Where `name` is null, its reason is there: in `<name>_why`, else by its name in `unknown`."""
    if not _may_be_null(keys[name]):
        return None
    condition = {"properties": {name: {"type": "null"}}, "required": [name]}
    why = f"{name}_why"
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
    from dynadiag.render.report_keys import ReportFile

    yield "report", schema_of("report", ReportFile, title="dynadiag report.json")


def published(schema: Mapping[str, Any]) -> str:
    """The text of a file in docs/."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def path_of(name: str) -> Path:
    """Where the schema of a document is published."""
    return ROOT / "docs" / f"{name}.schema.json"


if __name__ == "__main__":
    for name, schema in documents():
        path_of(name).write_text(published(schema), encoding="utf-8")
