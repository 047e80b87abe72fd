"""The published JSON Schemas are those that the classes in the code give, and each key has one meaning."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Annotated, Literal

import jsonschema
import pytest

from dynadiag.model.json_keys import NOT_WRITTEN, Count, KeysOf, ReasonIn

ROOT = Path(__file__).parents[2]
_SPEC = importlib.util.spec_from_file_location("schemas", ROOT / "docs/site/schemas.py")
schemas = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(schemas)
DOCUMENTS = dict(schemas.documents())


def test_every_published_schema_is_generated():
    assert {path.name.removesuffix(".schema.json") for path in (ROOT / "docs").glob("*.schema.json")} == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_published_schema_is_the_generated_one(name):
    """`python docs/site/schemas.py` writes it again."""
    published = schemas.path_of(name).read_text(encoding="utf-8")
    assert published == schemas.published(DOCUMENTS[name])
    jsonschema.Draft202012Validator.check_schema(json.loads(published))


def keys(schema, parts, path=""):
    """Each key of the documents of a schema, by its path."""
    if "$ref" in schema:
        return keys(parts[schema["$ref"].rpartition("/")[2]], parts, path)
    found = {f"{path}.{name}": inner for name, inner in schema.get("properties", {}).items()}
    for name, inner in list(found.items()):
        found |= keys(inner, parts, name)
    for inner in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), schema.get("items"), schema.get("additionalProperties")):
        found |= keys(inner, parts, path) if isinstance(inner, dict) else {}
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_reason_why_something_is_null_is_a_text(name):
    schema = DOCUMENTS[name]
    reasons = {path: inner for path, inner in keys(schema, schema.get("$defs", {})).items() if path.endswith("_why")}
    assert all({"type": "string"} in (inner, *inner.get("anyOf", ())) or inner.get("type") == "string" for inner in reasons.values())


@dataclasses.dataclass
class Written:
    """A thing."""

    number: Annotated[Count | None, "how many"]
    kind: Literal["a", "b"]
    hidden: Annotated[int, NOT_WRITTEN]
    other: Annotated[float | None, ReasonIn("because")]
    because: str | None = None


def test_what_annotations_say_is_in_the_schema():
    schema = schemas.schema_of("written", KeysOf((Written,), ("number",)), title="A title")
    assert (schema["title"], schema["description"]) == ("A title", "A thing.")
    assert schema["properties"]["number"] == {"description": "how many", "anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]}
    assert schema["properties"]["kind"] == {"type": "string"}  # an open enum
    assert schema["required"] == ["number", "kind", "other", "because", "number_why"]
    validator = jsonschema.Draft202012Validator(schema)
    whole = {"number": 1, "kind": "c", "other": 1.5, "because": None, "number_why": None}
    assert validator.is_valid(whole)
    assert not validator.is_valid(whole | {"number": None})  # no reason
    assert validator.is_valid(whole | {"number": None, "number_why": "not recorded"})
    assert not validator.is_valid(whole | {"other": None})
    assert validator.is_valid(whole | {"other": None, "because": "not recorded"})
    assert not validator.is_valid(whole | {"number": -1})
