"""The graphs and guards of a page: pictures, and all forms of a graph side by side, as far as there is room."""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.files import read_small
from dynadiag.model.graph import Graph
from dynadiag.model.report import GuardReport, Report
from dynadiag.render import wording
from dynadiag.render.html.code import graph_text
from dynadiag.render.html.tables import own_id, plain_row
from dynadiag.render.sanitise import clean
from dynadiag.trace import read_payload

GRAPHS_AT_MOST = 500
PICTURE_BYTES, TEXT_BYTES = 900_000, 600_000
"""How much of pictures and of graph texts the page holds; the graphs next to a graph break come first."""

_LONGEST_TEXT = 60_000
_PICTURE = re.compile(r"graphs/[a-z0-9-]+\.svg\Z")
_FORMS = {"dynamo": "Dynamo", "aot_joint": "AOTAutograd, joint", "aot_forward": "AOTAutograd, forward",
          "aot_backward": "AOTAutograd, backward", "aot_inference": "AOTAutograd", "post_grad": "post-grad"}  # fmt: skip


@dataclass(slots=True)
class _Maker:
    report: Report
    rows: Mapping[tuple[str, int], str]
    directory: Path | None
    picture_room: int
    text_room: int

    def graph(self, graph: Graph, forms: Sequence[Graph]) -> dict[str, Any]:
        """One graph with what there still is room for."""
        count = sum(graph.ops.values())
        return {
            "id": own_id(graph.id, "g"),
            "title": wording.frame_label(self.report, graph.frame),
            "said": f"{wording.plural(count, 'operator')}: {wording.top_ops(graph.ops, 6)}" if count else clean(graph.why_not or ""),
            "pictures": list(self._pictures(graph)),
            "forms": [form for one in forms if (form := self._form(one)) is not None],
        }

    def _form(self, one: Graph) -> dict[str, Any] | None:
        text = _read(one)
        if text is None or len(text) > self.text_room:
            return None
        self.text_room -= min(len(text), _LONGEST_TEXT)
        title = f"{_FORMS.get(one.kind, clean(one.kind, limit=40))} ({clean(one.id, limit=20)})"
        return {"id": f"text-{own_id(one.id, 'g')}", "title": title, "parts": list(graph_text(text, self.rows, _LONGEST_TEXT))}

    def _pictures(self, graph: Graph) -> Iterator[dict[str, str]]:
        for key in (graph.id, f"{graph.id}-mutations"):
            name = self.report.pictures.get(key)
            if self.directory is None or name is None or not _PICTURE.match(name):
                continue
            room = max(0, self.picture_room * 3 // 4)
            try:
                data = read_small(self.directory / name, room + 1)
            except (OSError, DynadiagError):
                continue
            if len(data) > room:
                continue
            source = base64.b64encode(data).decode()
            self.picture_room -= len(source)
            what = "Mutations in graph" if key.endswith("-mutations") else "Graph"
            yield {"alt": f"{what} {clean(graph.id, limit=20)}", "source": f"data:image/svg+xml;base64,{source}"}


def graphs(report: Report, rows: Mapping[tuple[str, int], str], directory: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Dynamo's graphs, each with its pictures and all forms of it; and what was left out. `rows` are the anchors of source lines."""
    own = [graph for graph in report.run.graphs if graph.kind == "dynamo"] or list(report.run.graphs)
    lowered: dict[str, list[Graph]] = defaultdict(list)
    for graph in report.run.graphs:
        if graph.kind != "dynamo":
            lowered[graph.frame].append(graph)
    near = {name for site in report.graph_breaks for name in (*site.graphs_before, *site.graphs_after)}
    maker = _Maker(report, rows, directory, PICTURE_BYTES, TEXT_BYTES)
    made = {
        graph.id: maker.graph(graph, [graph, *(lowered.pop(graph.frame, ()) if graph.kind == "dynamo" else ())])
        for graph in sorted(own[:GRAPHS_AT_MOST], key=lambda graph: graph.id not in near)
    }
    notes = [f"{GRAPHS_AT_MOST} of {len(own):,} graphs are listed"] if len(own) > GRAPHS_AT_MOST else []
    without = sum(not one["pictures"] for one in made.values()), sum(not one["forms"] for one in made.values())
    for count, what in zip(without, ("picture", "text"), strict=True):
        if count:
            notes.append(f"{wording.plural(count, 'graph')} without {what} in this page; `dynadiag graph` shows each")
    return [made[graph.id] for graph in own[:GRAPHS_AT_MOST]], notes


def _read(graph: Graph) -> str | None:
    if graph.text is None or graph.text.length > 4 * _LONGEST_TEXT:
        return None
    try:
        return read_payload(graph.text)
    except DynadiagError:
        return None


def guard(one: GuardReport, report: Report) -> dict[str, Any]:
    """The guards of one frame: their number, kinds and cost, the most expensive and unusual ones, and those that failed."""
    latency = "" if one.latency_us is None else f", {one.latency_us:,.1f} µs a check"
    kinds = ", ".join(f"{clean(kind, limit=40)} {count:,}" for kind, count in sorted(one.by_kind.items(), key=lambda item: -item[1]))
    columns = [{"heading": name, "numeric": False} for name in ("kind", "source", "code", "asked for by")]
    kept = dict.fromkeys((*one.dearest, *one.odd))
    rows = [plain_row(guard.kind, guard.source, guard.code, guard.origin or "") for guard in kept]
    return {
        "frame": wording.frame_label(report, one.frame),
        "said": f"{wording.plural(one.count, 'guard')}{latency}",
        "kinds": kinds,
        "rows": {"title": f"Guards of {one.frame}", "columns": columns, "rows": rows} if rows else None,
        "failed": [clean(text, limit=400) for text in one.failed[:20]],
    }
