"""The ids of graph breaks that `dynadiag rule` knows."""

import json
from pathlib import Path

import torch._dynamo

from dynadiag.rules.torch_breaks import torch_break


def test_every_id_of_this_torch_is_known():
    registry = json.loads((Path(torch._dynamo.__file__).parent / "graph_break_registry.json").read_text())
    assert [gb_id for gb_id in registry if torch_break(gb_id) is None] == []
