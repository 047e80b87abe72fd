import json
import re
from pathlib import Path

import pytest

TRACES = Path(__file__).resolve().parents[3].parent / "shared" / "traces"
CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "mutations"
PREFIX = re.compile(r"[VIWEC]\d{4} [\d:.]+ \d+ ?[^:]+:\d+\] (.*)")


def records_of(path):
    """(metadata, payload) of each record of a trace log."""
    current, payload = None, []
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("\t"):
            payload.append(line[1:])
            continue
        if current is not None:
            yield current, "\n".join(payload)
        found, current, payload = PREFIX.match(line), None, []
        if found:
            try:
                current = json.loads(found[1])
            except ValueError:
                current = None
    if current is not None:
        yield current, "\n".join(payload)


def graph_text(signature, *body, children=""):
    lines = ["class GraphModule(torch.nn.Module):", f"    def forward(self, {signature}):", *(f"        {line}" for line in body)]
    return "\n".join([*lines, children])


@pytest.fixture
def foreign_graphs():
    if not TRACES.exists():
        pytest.skip("no ../shared/traces")
    found = []
    for path in sorted(item for item in TRACES.rglob("*") if item.suffix in (".log", ".txt")):
        for metadata, payload in records_of(path):
            kinds = [key for key in metadata if key.endswith("_graph")]
            found += [(path.name, kinds[0], payload)] if kinds else []
    return found


@pytest.fixture
def printed():
    return graph_text
