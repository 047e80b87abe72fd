"""The published JSON Schemas are those that the classes in the code give, and each key has one meaning."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import jsonschema
import pytest

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
