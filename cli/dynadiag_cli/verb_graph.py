"""`dynadiag graph`: one captured graph of a run or a log as a standalone script and a picture."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynadiag.errors import DynadiagError, NothingFoundError, OutputError, TorchUnsupportedError, UsageError
from dynadiag.files import read_small, write_inside
from dynadiag.trace.sources import recording_at
from dynadiag_cli.options import LONGEST_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from dynadiag.model import Graph, Run
    from dynadiag.render.picture import Picture

EXAMPLES = """Examples:

  dynadiag graph dynadiag-runs/latest g3 --svg

  dynadiag graph trace.log#g0 --device cpu -o graphs
"""
_MARK = "# Written by dynadiag graph:"
_FRAMES = "frames"


def graph(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, a TORCH_TRACE log or a folder of logs; RUN#g3 names a graph.")
    ],
    graph_id: Annotated[str | None, typer.Argument(metavar="ID", help="The graph's id in the report, such as g3; frames: a map.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write into.")] = Path(),
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="Replace every accelerator with this device, such as cpu.")
    ] = None,
    try_it: Annotated[
        bool | None,
        typer.Option("--try/--no-try", help="Run the script once in an empty folder [default: only for a run that you recorded here]."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", min=1, max=LONGEST_S, help="Time limit for that run, in seconds.")
    ] = 120.0,
    picture: Annotated[bool, typer.Option("--picture/--no-picture", help="Also draw the graph.")] = True,
    renderer: Annotated[
        str, typer.Option("--renderer", metavar="NAME", help="Layout of the picture: auto, graphviz, dot or columns; text draws none.")
    ] = "auto",
    svg: Annotated[bool, typer.Option("--svg", help="Only draw the graph; needs no torch.")] = False,
    chosen_format: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Only print all its nodes and edges: dot, graphml or json; needs no torch."),
    ] = None,
    text: Annotated[
        bool,
        typer.Option(
            "--text",
            help="Only print the recorded text; needs no torch. ID may also be that of Inductor's output code (o0) or a guard tree (t0).",
        ),
    ] = False,
) -> None:
    """Write one captured graph as a Python script that needs only torch, and as a picture.

    Nothing of the log is run as it stands: the graph is rebuilt from its text with an allow-list. The script of a run that you recorded on
    this machine is tried once; --try does so for any other. Exit status 1 says that the script was written but does not run here, 2 that
    the graph cannot be rebuilt.
    """
    from dynadiag.render.drawing import checked_renderer
    from dynadiag.runs import recorded_here
    from dynadiag_cli.showing import make_folder, without_gc

    path, wanted = _named(run, graph_id)
    if device is not None and device.split(":")[0] not in ("cpu", "cuda", "xpu", "meta"):
        raise UsageError(f"--device {device}: not one of cpu, cuda, xpu, meta")
    checked_renderer(renderer)
    if text:
        _print_text(path, wanted)
        return
    if chosen_format is not None:
        _print_graph(path, wanted, chosen_format)
        return
    if wanted == _FRAMES:
        make_folder(output)
        if not _draw_frames(path, output, renderer):
            raise typer.Exit(1)
        return
    with without_gc():  # half the time of a graph of 50,000 nodes, which is a million objects that stay
        loaded, chosen = _find(path, wanted)
        make_folder(output)
        if (picture or svg) and not _draw(loaded, chosen, output, renderer) and svg:
            raise typer.Exit(1)
        if svg:
            return
        tried = recorded_here(path) if try_it is None else try_it
        if importlib.util.find_spec("torch") is None:
            raise TorchUnsupportedError("writing a graph as a script needs torch, which this Python does not have")
        from dynadiag.fx.standalone import TryOptions, standalone_of
        from dynadiag.record.guardian import guarded

        guarded()
        trying = TryOptions(timeout_s=timeout_s if tried else None)
        made = standalone_of(loaded, chosen, title=_MARK[2:], device=device, trying=trying, say=_say)
    target = output / f"{chosen.id}.py"
    _write(target, made.source)
    _say(f"wrote {target}")
    if try_it is None and not tried:
        _say(f"{target.name} was not run, because you did not record {path} here; --try runs it")
    if made.output:
        print(made.output, end="")
    if made.runnable is False:
        _say(f"{chosen.id} does not run here: {made.why_not}")
        raise typer.Exit(1)


def _print_text(path: Path, wanted: str) -> None:
    """The recorded text of a graph, of output code or of a guard tree, on stdout."""
    from dynadiag import trace
    from dynadiag.render.sanitise import clean_block

    loaded = trace.load(path)
    texts = {graph.id: graph.text for graph in loaded.graphs} | {listing.id: listing.text for listing in loaded.listings}
    found = texts.get(wanted)
    if found is None:
        raise NothingFoundError(f"{path} contains no text of {wanted!r}")
    said = trace.read_payload(found)
    print(clean_block(said, limit=len(said), lines=len(said)))


def _print_graph(path: Path, wanted: str, chosen_format: str) -> None:
    """A graph in a format of other tools, on stdout."""
    from dynadiag.graphs.export import FORMATS, graph_text
    from dynadiag.render.graph_view import graph_view
    from dynadiag.render.recorded_graph import recorded_graph
    from dynadiag.render.sanitise import clean

    if chosen_format not in FORMATS:
        raise UsageError(f"--format {clean(chosen_format, limit=40)}: not one of {', '.join(FORMATS)}")
    _, chosen = _find(path, wanted)
    nodes = recorded_graph(chosen).nodes

    def cleaned(text: str) -> str:
        return clean(text, limit=400)

    print(graph_text(nodes, chosen_format, clean=cleaned, path=graph_view(nodes).critical_path), end="")


def _named(run: Path, graph_id: str | None) -> tuple[Path, str]:
    """The recording and the id, from `RUN ID` or `RUN#ID`."""
    if graph_id is not None:
        return recording_at(run), graph_id
    path, mark, name = str(run).rpartition("#")
    if not mark or run.exists():
        raise UsageError(f"{run}: which graph? Give its id, as in: dynadiag graph {run} g0")
    return recording_at(Path(path)), name


def _say(line: str) -> None:
    print(f"dynadiag: {line}", file=sys.stderr)


def _find(path: Path, wanted: str) -> tuple[Run, Graph]:
    from dynadiag import trace

    loaded = trace.load(path)
    if not loaded.graphs:
        raise NothingFoundError(f"{path} contains no captured graph")
    for candidate in loaded.graphs:
        if candidate.id == wanted:
            return loaded, candidate
    raise UsageError(f"{path} has no graph {wanted!r}; it has {loaded.graphs[0].id} to {loaded.graphs[-1].id}")


def _write(target: Path, source: str) -> None:
    """A file that we did not write stays."""
    try:
        if not _may_be_replaced(target):
            raise OutputError(f"{target} exists and was not written by dynadiag graph")
        write_inside(target.parent, target.name, source)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror}") from None


def _may_be_replaced(target: Path) -> bool:
    try:
        return read_small(target, len(_MARK)) == _MARK.encode()
    except FileNotFoundError:
        return True
    except OSError:  # a link, a folder, a pipe
        return False


def _draw(run: Run, chosen: Graph, output: Path, renderer: str) -> bool:
    """The graph as an SVG beside the script; whether it was drawn."""
    from dynadiag.render import pictures

    return _drawn(chosen.id, pictures.file_stem(chosen, run), lambda: pictures.picture_of_graph(chosen, run), output, renderer)


def _draw_frames(path: Path, output: Path, renderer: str) -> bool:
    """The frame map of a recording as an SVG; whether it was drawn."""
    from dynadiag import report, trace
    from dynadiag.render import pictures

    built = report.build(trace.load(path))
    return _drawn("the frame map", _FRAMES, lambda: pictures.picture_of_frames(built), output, renderer)


def _drawn(what: str, stem: str, picture: Callable[[], Picture], output: Path, renderer: str) -> bool:
    """Write a picture and its DOT text. One that cannot be drawn is said in one line and stops nothing."""
    from dynadiag.render.drawing import drawn

    try:
        drawing = drawn(picture(), renderer)
        target = output / f"{stem}{drawing.suffix}"
        write_inside(output, target.name, drawing.text)
        if drawing.dot is not None:
            write_inside(output, f"{stem}.gv", drawing.dot)
    except (DynadiagError, OSError) as error:
        _say(f"{what} was not drawn: {error}")
        return False
    if drawing.note is not None:
        _say(f"{what} was {drawing.note}")
    _say(f"wrote {target}")
    return True
