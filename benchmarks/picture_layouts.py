"""The pictures of recorded graphs by Graphviz and in columns of ours, side by side: the table of docs/pictures.md.

    python benchmarks/picture_layouts.py RUN ... [--count 40] [--keep FOLDER]

Measured in the SVG itself: places where two lines cross, links told in words instead of a line, the height, the longest line, and seconds.
"""

from __future__ import annotations

import argparse
import itertools
import re
import statistics
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import dynadiag.render.drawing as drawing_module
from dynadiag import trace
from dynadiag.errors import DynadiagError
from dynadiag.render.drawing import HIGHER, drawn
from dynadiag.render.picture import Picture
from dynadiag.render.pictures import picture_of_graph

Point = tuple[float, float]
_PART = re.compile(r"([MLHVQC])([^MLHVQC]*)")


@dataclass(frozen=True)
class Measured:
    """One picture by one layout."""

    crossings: int
    in_words: int
    height: float
    longest: float
    seconds: float
    note: str


def polyline(path: str) -> list[Point]:
    """The path of an SVG as short straight pieces."""
    points: list[Point] = []
    for command, text in _PART.findall(path):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text)]
        x, y = points[-1] if points else (0.0, 0.0)
        if command == "H":
            points.append((numbers[0], y))
        elif command == "V":
            points.append((x, numbers[0]))
        elif command in "ML":
            points.append((numbers[0], numbers[1]))
        else:
            step = 4 if command == "Q" else 6
            for start in range(0, len(numbers), step):
                control = [points[-1], *zip(numbers[start : start + step : 2], numbers[start + 1 : start + step : 2], strict=True)]
                points += [_bezier(control, at / 8) for at in range(1, 9)]
    return points


def _bezier(points: list[Point], at: float) -> Point:
    while len(points) > 1:
        points = [(a[0] + (b[0] - a[0]) * at, a[1] + (b[1] - a[1]) * at) for a, b in itertools.pairwise(points)]
    return points[0]


def _cross(a: Point, b: Point, c: Point, d: Point) -> Point | None:
    """Where two pieces properly cross."""
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = a, b, c, d
    area = (bx - ax) * (dy - cy) - (by - ay) * (dx - cx)
    if abs(area) < 1e-9:
        return None
    t = ((cx - ax) * (dy - cy) - (cy - ay) * (dx - cx)) / area
    u = ((cx - ax) * (by - ay) - (cy - ay) * (bx - ax)) / area
    return (ax + t * (bx - ax), ay + t * (by - ay)) if 0 <= t <= 1 and 0 <= u <= 1 else None


def crossings(lines: list[list[Point]]) -> int:
    """Pairs of lines that cross anywhere but within 2 px of an end of one of them: there they meet."""
    found = 0
    for one, other in itertools.combinations(lines, 2):
        ends = (one[0], one[-1], other[0], other[-1])
        places = (_cross(a, b, c, d) for a, b in itertools.pairwise(one) for c, d in itertools.pairwise(other) if _near(a, b, c, d))
        found += any(place is not None and all(abs(place[0] - x) + abs(place[1] - y) > 2 for x, y in ends) for place in places)
    return found


def _near(a: Point, b: Point, c: Point, d: Point) -> bool:
    return all(min(a[i], b[i]) <= max(c[i], d[i]) and min(c[i], d[i]) <= max(a[i], b[i]) for i in (0, 1))


def measure(picture: Picture, renderer: str, keep: Path | None) -> Measured:
    """Draw the picture and measure it."""
    began = time.monotonic()
    with mock.patch.object(drawing_module, "TIMEOUT_S", 600.0):  # what other work a machine has shall not decide
        drawing = drawn(picture, renderer)
    seconds = time.monotonic() - began
    if keep is not None:
        keep.with_name(f"{keep.name}-{renderer}.svg").write_text(drawing.text)
    root = ElementTree.fromstring(drawing.text)
    paths = [item.get("d", "") for item in root.iter() if item.tag.endswith("path")]
    lines = [line for line in map(polyline, paths) if len(line) > 1]
    texts = [item.text or "" for item in root.iter() if item.tag.endswith("text")]
    words = [text for text in texts if re.fullmatch(r"from \d+(, \d+)*( and \d+ more)?", text)]
    told = sum(text.count(",") + 1 + int((re.search(r"and (\d+) more", text) or [0, 0])[1]) for text in words)
    longest = max(
        (sum(((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5 for a, b in itertools.pairwise(line)) for line in lines), default=0.0
    )
    return Measured(crossings(lines), told, float(root.get("height", 0)), longest, seconds, drawing.note or "")


def chosen_by_auto(picture: Picture, ours: Measured, theirs: Measured) -> Measured:
    """What `auto` draws, which is one of both: asked only where their heights (here with title and legend) leave it open."""
    ratio = theirs.height / ours.height
    if theirs.note or ratio > HIGHER + 0.1:
        return ours
    return theirs if ratio < HIGHER - 0.1 else measure(picture, "auto", None)


def chosen(runs: list[Path], count: int) -> list[tuple[str, int, Picture]]:
    """Graphs of 10 to 2,000 operators, evenly spread over their sizes, each structure once."""
    found: dict[tuple[int, int, int], tuple[str, int, Picture]] = {}
    for path in runs:
        run = trace.load(path)
        for graph in run.graphs:
            size = graph.size or 0
            if 10 <= size <= 2000 and graph.text is not None:
                try:
                    picture = picture_of_graph(graph, run)
                except DynadiagError:
                    continue
                found.setdefault((size, len(picture.rows), len(picture.links)), (f"{path.name} {graph.id} {graph.kind}", size, picture))
    ordered = sorted(found.values(), key=lambda item: item[1])
    step = max(1.0, len(ordered) / count)
    return [ordered[int(at * step)] for at in range(min(count, len(ordered)))]


def main() -> None:
    """Print the table and its sums."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    print("| graph | operators | boxes | links | crossings | in words | height | longest line | ms | auto takes |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    rows: list[tuple[int, Measured, Measured, Measured]] = []
    for number, (name, size, picture) in enumerate(chosen(options.runs, options.count)):
        keep = options.keep / f"{number:02}" if options.keep else None
        ours, theirs = (measure(picture, renderer, keep) for renderer in ("columns", "graphviz"))
        auto = chosen_by_auto(picture, ours, theirs)
        takes = "columns" if (auto.crossings, auto.height) == (ours.crossings, ours.height) else "ranks"
        boxes = len(picture.rows)
        rows.append((boxes, ours, theirs, auto))
        cells = [name, size, boxes, len(picture.links), *(f"{a} / {b}" for a, b in zip(_cells(ours), _cells(theirs), strict=True)), takes]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    for what, some in (
        ("30 boxes or fewer", [row for row in rows if row[0] <= 30]),
        ("over 30 boxes", [row for row in rows if row[0] > 30]),
    ):
        if some:
            print(f"\n{what}: {len(some)} graphs, columns / ranks / auto")
            for field in ("crossings", "in_words"):
                print(f"* {field}: " + " / ".join(str(sum(getattr(row[at], field) for row in some)) for at in (1, 2, 3)))
            for at, kind in ((2, "ranks"), (3, "auto")):
                ratios = [row[at].height / row[1].height for row in some]
                print(f"* height of {kind} to columns: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}")


def _cells(found: Measured) -> tuple[str, ...]:
    return str(found.crossings), str(found.in_words), f"{found.height:.0f}", f"{found.longest:.0f}", f"{1000 * found.seconds:.0f}"


if __name__ == "__main__":
    main()
