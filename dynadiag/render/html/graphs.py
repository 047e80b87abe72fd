"""The graphs and guards of a page: pictures, and all forms of a graph side by side, as far as there is room."""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from dynadiag.errors import DynadiagError
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import kept_graphs
from dynadiag.facts.wording import rank_text
from dynadiag.files import read_small
from dynadiag.model.compiled import GuardCost, Listing
from dynadiag.model.graph import Graph
from dynadiag.model.location import PayloadRef
from dynadiag.model.report import GuardReport, Report
from dynadiag.model.run import Run
from dynadiag.render import wording
from dynadiag.render.drawing import drawn
from dynadiag.render.html.code import graph_text, output_code, rows_of_names
from dynadiag.render.html.guard_tree import tree
from dynadiag.render.html.tables import ROWS_AT_MOST, own_id, plain_row
from dynadiag.render.pictures import picture_of_graph
from dynadiag.render.sanitise import clean
from dynadiag.trace import NodeStacks, graph_details, read_payload

GRAPHS_AT_MOST = 500
FAILED_AT_MOST = 6
PICTURE_BYTES, TEXT_BYTES, TREE_BYTES = 900_000, 700_000, 250_000
"""How much of pictures, of graph texts and of guard trees the page holds; the graphs next to a graph break come first."""
COLOURED_BYTES = 160_000
"""How much of the texts is coloured, which takes a second for each megabyte."""

DRAWN_AT_MOST, DRAWN_BYTES = 60, 3_000_000
"""How many graphs are drawn for the page, beside those that have a picture, and how long their texts are: 0.3 s of CPU a megabyte."""

_LONGEST_TEXT = 60_000
_LEFT_OUT = "\n\n# ... kernels are left out here ...\n"
_LONGEST_LINE = 2000
_LONGEST_DETAILS = 16 << 20
_RENAMED = re.compile(r" +l_\w{1,2000} = L_\w{1,2000}")
_AOT_ID = re.compile(r"# AOT ID: \['(\w{1,40})'\]")
_PICTURE = re.compile(r"graphs/[a-z0-9-]+\.svg\Z")
_ENDED = {"failed": "failed", "skipped": "was given up"}
_FORMS = {"dynamo": "Dynamo", "aot_joint": "AOTAutograd, joint", "aot_forward": "AOTAutograd, forward",
          "aot_backward": "AOTAutograd, backward", "aot_inference": "AOTAutograd", "post_grad": "post-grad"}  # fmt: skip


@dataclass(slots=True)
class _Maker:
    report: Report
    rows: Mapping[tuple[str, int], str]
    directory: Path | None
    picture_room: int
    text_room: int
    colour_room: int
    drawn_room: int
    drawn_left: int
    kept: Set[str]

    def graph(self, graph: Graph, lowered: Sequence[Graph], listings: Sequence[Listing]) -> dict[str, Any]:
        """One graph with what there still is room for: its own text and what became of it."""
        names: dict[str, str] = {}
        rows = self._rows(graph)
        forms = [
            self._form(graph, rows, names if listings else None),
            *(self._code(listing, names) for listing in listings),
            *(self._form(item, rows) for item in lowered),
        ]
        wanted = [graph.id, *(element.id for element in listings), *(entry.id for entry in lowered)]
        shown = [form for form in forms if form is not None]
        return {
            "id": own_id(graph.id, "g"),
            "title": frame_title(self.report, graph.frame),
            "said": self._size_words(graph),
            "pictures": list(self._pictures(graph)),
            "forms": sorted(shown, key=lambda form: form["order"]),
            "left": [clean(name, limit=20) for name, form in zip(wanted, forms, strict=True) if form is None],
        }

    def _size_words(self, graph: Graph) -> str:
        """How large it is, and whether it was thrown away."""
        count, parts = graph.size, list[str]()
        if count:
            parts.append(f"{wording.plural(count, 'operator')}: {wording.top_ops(graph.ops, 6)}")
        elif graph.why_not or graph.nodes is not None:
            parts.append(clean(graph.why_not or "no operators: inputs and output only"))
        frame = self.report.run.frame(graph.frame)
        if graph.kind == "dynamo" and frame is not None and graph.id not in self.kept:
            ended = (
                "Dynamo started over" if frame.outcome in ("compiled", "broke") else f"the compilation {_ENDED.get(frame.outcome, 'ended')}"
            )
            parts.append(f"thrown away: {ended}")
        return "; ".join(parts)

    def _rows(self, graph: Graph) -> Mapping[tuple[str, int], str]:
        """The anchors of source lines; by line of a library that nodes of the graph come from those of the own lines that led there."""
        if graph.details is None or graph.details.length > _LONGEST_DETAILS or not self.rows:
            return self.rows
        try:
            stacks = list(NodeStacks(graph_details(graph.details)).all())
        except DynadiagError:
            return self.rows
        called: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
        for stack in stacks:
            if stack and stack[-1].line is not None:
                above = (self.rows.get((place.file, place.line)) for place in stack if place.line is not None)
                called[stack[-1].file, stack[-1].line] |= dict.fromkeys(row for row in above if row is not None)
        return {**self.rows, **{place: " ".join(found) for place, found in called.items() if found}}

    def _form(self, graph: Graph, rows: Mapping[tuple[str, int], str], names: dict[str, str] | None = None) -> dict[str, Any] | None:
        """The text of a graph; the rows of its nodes go to `names`."""
        text = self._text(graph.text)
        if text is None:
            return None
        length = len(text)
        if length > _LONGEST_TEXT:  # the inputs of a large model fill one line of Dynamo's text, and then a line each
            lines = (line for line in text.split("\n") if _RENAMED.fullmatch(line) is None)
            text = "\n".join(line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..." for line in lines)
        if names is not None:
            names.update(rows_of_names(text, rows, _LONGEST_TEXT))
        order = tuple(_FORMS).index(graph.kind) if graph.kind in _FORMS else len(_FORMS)
        return self._shown(
            graph.id,
            _FORMS.get(graph.kind, clean(graph.kind, limit=40)),
            text,
            graph_text(text, rows, _LONGEST_TEXT, colour=self._colour(text)),
            order,
            length,
        )

    def _code(self, listing: Listing, names: Mapping[str, str]) -> dict[str, Any] | None:
        text = self._text(listing.text)
        if text is None:
            return None
        found, length = _AOT_ID.match(text), len(text)
        title = f"Inductor's output code{f' of {found[1]}' if found else ''}"
        text = _without_middle(text, _LONGEST_TEXT)
        parts = output_code(text, names, _LONGEST_TEXT, colour=self._colour(text))
        made = self._shown(listing.id, title, text, parts, len(_FORMS) + 1, length)
        return made if len(text) == length else {**made, "cut": f"{len(text):,} of {length:,} characters: kernels are left out."}

    def _colour(self, text: str) -> bool:
        self.colour_room -= min(len(text), _LONGEST_TEXT)
        return self.colour_room >= 0

    def _text(self, ref: PayloadRef | None) -> str | None:
        """A text as far as the page shows it, if there is room for that much."""
        text = _read(ref) if self.text_room >= min(ref.length if ref else 0, _LONGEST_TEXT) else None
        return None if text is None or len(text[:_LONGEST_TEXT]) > self.text_room else text

    def _shown(
        self, name: str, title: str, text: str, parts: Iterable[tuple[str | None, Markup]], order: int, length: int
    ) -> dict[str, Any]:
        made = list(parts)
        self.text_room -= sum(len(part) for _, part in made)
        cut = (
            f"The first {_LONGEST_TEXT:,} of {length:,} characters"
            if len(text) > _LONGEST_TEXT
            else f"{len(text):,} of {length:,} characters"
        )
        cut = (
            ""
            if length <= _LONGEST_TEXT
            else cut + ("." if len(text) == length else f": lines are cut after {_LONGEST_LINE:,}, inputs' names left out.")
        )
        return {"id": f"text-{own_id(name, 'g')}", "title": f"{title} ({clean(name, limit=20)})", "parts": made, "cut": cut, "order": order}

    def _pictures(self, graph: Graph) -> Iterator[dict[str, str]]:
        for key in (graph.id, f"{graph.id}-mutations"):
            room = max(0, self.picture_room * 3 // 4)
            data = self._written(key, room + 1)
            if data is None and key == graph.id:
                data = self._drawn(graph)
            if data is None or len(data) > room:
                continue
            source = base64.b64encode(data).decode()
            self.picture_room -= len(source)
            what = "Mutations in graph" if key.endswith("-mutations") else "Graph"
            yield {"alt": f"{what} {clean(graph.id, limit=20)}", "source": f"data:image/svg+xml;base64,{source}"}

    def _written(self, key: str, limit: int) -> bytes | None:
        """The picture that stands beside the page."""
        name = self.report.pictures.get(key)
        if self.directory is None or name is None or not _PICTURE.match(name):
            return None
        try:
            return read_small(self.directory / name, limit)
        except (OSError, DynadiagError):
            return None

    def _drawn(self, graph: Graph) -> bytes | None:
        """A picture of a graph that has none: those far from any finding, or of a run that is shown without its folder."""
        length = graph.text.length if graph.text is not None else 0
        if not length or length > self.drawn_room or not self.drawn_left:
            return None
        self.drawn_room -= length
        self.drawn_left -= 1
        try:
            return drawn(picture_of_graph(graph, self.report.run, self.report)).text.encode()
        except DynadiagError:
            return None


def graphs(report: Report, rows: Mapping[tuple[str, int], str], directory: Path | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Dynamo's graphs, each with its pictures and all forms of it; and what was left out. `rows` are the anchors of source lines."""
    captured = _captured(report.run)
    lowered: dict[str, list[Graph]] = defaultdict(list)
    own = []
    for graph in report.run.graphs:
        above = None if graph.kind == "dynamo" else _above(captured, graph.frame, graph.attempt)
        if above is None:
            own.append(graph)
        else:
            lowered[above.id].append(graph)
    listings: dict[str, list[Listing]] = defaultdict(list)
    for listing in report.run.listings:
        if listing.kind == "output_code" and (above := _above(captured, listing.frame, listing.attempt)) is not None:
            listings[above.id].append(listing)
    near = {name for site in report.graph_breaks for name in (*site.graphs_before, *site.graphs_after)}
    kept = {name for names in kept_graphs(report.run).values() for name in names}
    maker = _Maker(report, rows, directory, PICTURE_BYTES, TEXT_BYTES, COLOURED_BYTES, DRAWN_BYTES, DRAWN_AT_MOST, kept)
    made = {
        graph.id: maker.graph(graph, lowered.get(graph.id, ()), listings.get(graph.id, ()))
        for graph in sorted(own[:GRAPHS_AT_MOST], key=lambda graph: graph.id not in near)
    }
    notes = [f"{GRAPHS_AT_MOST} of {len(own):,} graphs are listed"] if len(own) > GRAPHS_AT_MOST else []
    if count := sum(not record["pictures"] for record in made.values()):
        notes.append(f"{wording.plural(count, 'graph')} without picture in this page; `dynadiag graph RUN ID --svg` draws each")
    left = [name for mapping in made.values() for name in mapping["left"]]
    cut = any(form["cut"] for item in made.values() for form in item["forms"])
    if left or cut:
        said = [f"{wording.plural(len(left), 'text')} not in this page"] if left else []
        said += [f"{'l' if left else 'L'}ong texts are cut"] if cut else []
        notes.append(f"{', '.join(said)}; `dynadiag graph RUN ID --text` prints each")
    return [made[graph.id] for graph in own[:GRAPHS_AT_MOST]], notes


def _captured(run: Run) -> Mapping[tuple[str, int | None], Graph]:
    """Dynamo's first graph of each attempt of a frame, and under None its last one."""
    found: dict[tuple[str, int | None], Graph] = {}
    for graph in run.graphs:
        if graph.kind == "dynamo":
            found.setdefault((graph.frame, graph.attempt), graph)
            found[graph.frame, None] = graph
    return found


def _above(captured: Mapping[tuple[str, int | None], Graph], frame: str, attempt: int) -> Graph | None:
    """The graph of Dynamo's that another form of it was made of, as far as the log tells: of the same attempt, else the frame's last."""
    return captured.get((frame, attempt)) or captured.get((frame, None))


def frame_title(report: Report, frame_id: str) -> str:
    """`f1 train_step [1/0]`, with its rank where there are several."""
    frame = report.run.frame(frame_id)
    rank = rank_text(report.run, (frame.key.process,)) if frame is not None else ""
    return wording.frame_label(report, frame_id) + (f", {clean(rank)}" if rank else "")


def _without_middle(text: str, limit: int) -> str:
    """Output code that is too long, without the last of the kernels: what calls them stands behind them, with the names of the nodes."""
    calls = text.find("\nasync_compile.wait(")
    if len(text) <= limit or calls < 0:
        return text
    tail = text[calls:][: limit * 2 // 3]
    head = text[: limit - len(tail) - len(_LEFT_OUT)].rpartition("\n")[0]
    return head + _LEFT_OUT + tail


def _read(ref: PayloadRef | None) -> str | None:
    if ref is None or ref.length > 8 * _LONGEST_TEXT:
        return None
    try:
        return read_payload(ref)
    except DynadiagError:
        return None


def guards(report: Report) -> list[dict[str, Any]]:
    """The guards of each frame, with the tree of them as long as there is room."""
    trees = {item.frame: item for item in report.run.listings if item.kind == "guards"}
    costs = {(guard_cost.frame, guard_cost.attempt): guard_cost for guard_cost in report.run.guard_costs}
    room, made = TREE_BYTES, []
    for guard in report.guards[:ROWS_AT_MOST]:
        listing = trees.get(guard.frame)
        shown = _guard(guard, report)
        text = _read(listing.text) if listing is not None and room > 0 else None
        if listing is not None:
            shown["tree_of"] = clean(listing.id, limit=20)
        if text is not None:
            cost = costs.get((listing.frame, listing.attempt)) if listing is not None else None
            html, lines, of = tree(text, cost.parts if cost is not None else None)
            room -= len(html)
            if lines and room >= 0:
                shown |= {"tree": html, "tree_said": "" if lines == of else f"The first {lines:,} of {of:,} lines."}
                shown["tree_cost"] = _cost_of_guards(cost)
        made.append(shown)
    return made


def _cost_of_guards(cost: GuardCost | None) -> str:
    if cost is None:
        return "What single parts cost was not measured: `dynadiag explain --cost SCRIPT` does. torch times only one check of all of them."
    return (
        f"One check of all takes {cost.whole_us:,.2f} µs with warm caches, {cost.root_us:,.2f} µs of it for what depends on no value. "
        f"The time at a value is that of checking it and what is below it alone (the fastest of {cost.checks:,} checks); "
        f"{wording.plural(len(cost.parts), 'part')} {'was' if len(cost.parts) == 1 else 'were'} timed. Alone a part "
        "can take longer than within the whole, where torch skips what hangs on dictionaries that did not change."
    )


def _guard(guard_report: GuardReport, report: Report) -> dict[str, Any]:
    """The guards of one frame: their number, kinds and cost, the most expensive and unusual ones, and those that failed."""
    latency = "" if guard_report.latency_us is None else f", {guard_report.latency_us:,.1f} µs a check"
    kinds = ", ".join(
        f"{clean(kind, limit=40)} {count:,}" for kind, count in sorted(guard_report.by_kind.items(), key=lambda item: -item[1])
    )
    columns = [{"heading": name, "numeric": False} for name in ("kind", "source", "code", "asked for by")]
    kept = dict.fromkeys((*guard_report.dearest, *guard_report.odd))
    rows = [plain_row(guard.kind, readable(guard.source), guard.code, guard.origin or "") for guard in kept]
    return {
        "frame": frame_title(report, guard_report.frame),
        "said": f"{wording.plural(guard_report.count, 'guard')}{latency}",
        "kinds": kinds,
        "rows": {"title": f"Guards of {guard_report.frame}", "columns": columns, "rows": rows} if rows else None,
        "tree": "",
        "tree_of": "",
        "tree_said": "",
        "tree_cost": "",
        "failed": [clean(text, limit=400) for text in guard_report.failed[:FAILED_AT_MOST]],
        "failed_left": max(0, len(guard_report.failed) - FAILED_AT_MOST),
    }
