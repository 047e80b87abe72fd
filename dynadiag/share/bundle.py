"""`dynadiag bug`: the form as one Markdown file, and one zip with what it rests on, both made of redacted facts. Nothing is sent."""

from __future__ import annotations

import getpass
import io
import json
import os
import socket
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dynadiag import report as reports
from dynadiag import trace
from dynadiag.errors import UnreadableInputError
from dynadiag.files import make_folder_inside, read_small, write_inside
from dynadiag.masking import NAMED, secret_values
from dynadiag.model.report import Report
from dynadiag.model.run import Run
from dynadiag.render import chrome_trace, document_json, json_report, pictures
from dynadiag.render import svg as wall
from dynadiag.render.document import Document
from dynadiag.render.html import report_page, result_page
from dynadiag.scratch import scratch
from dynadiag.share import form, repository
from dynadiag.share.form import Removed
from dynadiag.share.involved import involved
from dynadiag.share.redaction import Redactor
from dynadiag.share.trace_logs import LogWriter, log_name, write_marker
from dynadiag.trace.sources import Sources, find_sources, shown

FORM, BUNDLE = "issue.md", "bundle.zip"
RESULTS = ("minify.json", "bench.json")
_PROGRAMS = ("repro_min.py", "almost.py")
_LARGEST_MEMBER = 32 << 20
_LARGEST_LOG = 512 << 20  # packed, logs take a tenth or more of that, so this one has no room in any case
LARGEST_BUNDLE_BYTES = 25 << 20
"""What GitHub takes as an attachment (docs.github.com, "Attaching files")."""
_WHEN = (1980, 1, 1, 0, 0, 0)  # the same bundle for the same facts


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The two files, where they belong, what was removed, and which members had no room."""

    form: Path
    zip: Path
    repository: repository.Repository
    removed: Removed
    left_out: tuple[str, ...] = ()


def make_bundle(source: Path, folder: Callable[[], Path], *, redact: bool = True) -> Bundle:
    """Write `issue.md` and `bundle.zip` into a folder, which is asked for (and may be made) once there is something to write.

    Raises UnreadableInputError for what is no run and no result, OSError.
    """
    redactor = _redactor(source) if redact else None
    result = next((source / name for name in RESULTS if (source / name).is_file()), None)
    with scratch("bug") as work:
        made = _of_result(source, result.name, redactor) if result is not None else _of_run(source, work, redactor)
        text, members, place, removed = made
        data, left_out = _zipped({FORM: text, **members})
    out = folder()
    write_inside(out, FORM, text)
    write_inside(out, BUNDLE, data)
    return Bundle(form=out / FORM, zip=out / BUNDLE, repository=place, removed=removed, left_out=left_out)


_Member = str | bytes | Path
_Made = tuple[str, Mapping[str, _Member], repository.Repository, Removed]


def _redactor(source: Path) -> Redactor:
    """It knows who and where we are, and our own keys: a log that names none of them in a telling place may still contain all."""
    redactor = Redactor()
    redactor.learn(str(source.resolve()))
    for value in secret_values(os.environ):
        redactor.know(NAMED, value)
    with suppress(OSError, KeyError):
        redactor.identities.know("user name", getpass.getuser())
    host = socket.gethostname()
    for name in dict.fromkeys((host, host.partition(".")[0])):
        redactor.identities.know("host name", name)
    return redactor


def _of_run(source: Path, folder: Path, redactor: Redactor | None) -> _Made:
    """The report is built again from the redacted logs: no page or picture can show what they do not."""
    told = reports.build_with_replay(trace.load(source), source)
    sources = _read_in_full(find_sources(source), told.run)
    place = repository.of_report(told)
    if redactor is None:
        return _members_of_run(
            told, sources, folder, [log_name(number, log) for number, log in enumerate(sources.logs)], Removed(redacted=False), place
        )
    kept = involved(told)
    writer = LogWriter(redactor, kept)
    write_marker(sources, folder, redactor)
    names = writer.write(sources, folder)
    write_marker(sources, folder, redactor)
    again = reports.build_with_replay(_with_all_ranks(trace.load(folder), told.run, redactor), folder)
    counts = {**writer.left_out, **({"source line of another function": kept.left_out[0]} if kept.left_out[0] else {})}
    removed = Removed(rows=redactor.rows(), left_out=counts)
    # Where the new logs lie for this moment tells of this machine, and nothing of the run.
    processes = tuple(replace(process, log=Path(process.log).name) for process in again.run.processes)
    again = replace(again, run=replace(again.run, info=replace(again.run.info, directory=None), processes=processes))
    named = _named(place, redactor)
    return _members_of_run(again, Sources(tuple(folder / name for name in names), again.run.info), folder, names, removed, named)


def _read_in_full(sources: Sources, run: Run) -> Sources:
    """Without the logs of ranks that are only compared by their digests: a thousand logs take hours, and have no room."""
    read = {process.log for process in run.processes if process.alike is None}
    unread = {process.log for process in run.processes if process.alike is not None} - read
    return replace(sources, logs=tuple(log for log in sources.logs if str(log) not in unread))


def _with_all_ranks(run: Run, told: Run, redactor: Redactor) -> Run:
    """The run read from the packed logs, with the ranks of the whole job by number; every text is that of the packed logs, or redacted."""
    if told.ranks is None or told.ranks.read == told.ranks.ranks:
        return run
    troubles = tuple(replace(trouble, text=redactor.text(trouble.text, "ranks")) for trouble in told.ranks.troubles)
    members = {group.representative: group.ranks for group in told.ranks.groups}
    packed = run.ranks or replace(told.ranks, groups=told.ranks.groups[:1], own_values=(), frames={})  # one log, when all are alike
    groups = tuple(replace(group, ranks=members.get(group.representative, group.ranks)) for group in packed.groups)
    known = replace(packed, groups=groups, troubles=troubles, ranks=told.ranks.ranks, read=told.ranks.read, events=told.ranks.events)
    left = told.ranks.ranks - told.ranks.read
    note = f"the logs of {left:,} ranks are not packed: each rank is alike to one whose log is, or has no like and more than 64 differ"
    return replace(run, ranks=known, notes=(*run.notes, note))


def _members_of_run(
    report: Report, sources: Sources, folder: Path, names: list[str], removed: Removed, place: repository.Repository
) -> _Made:
    drawing = make_folder_inside(folder, "bundle")
    drawn, notes = pictures.write(report, drawing)
    report = replace(report, pictures=drawn, notes=(*report.notes, *notes))
    text = form.fitting(lambda source, error: form.of_run(report, place, removed, source=source, error=error))
    members: dict[str, _Member] = {
        "report.json": json_report.dumps(report),
        "report.html": report_page.render(report, drawing),
        **{path: read_small(drawing / path, _LARGEST_MEMBER) for path in drawn.values()},
    }
    if report.run.spans:
        members["compile_phases.trace.json"] = chrome_trace.dumps(report)
    members |= {f"trace/{number}-{name}": log for number, (log, name) in enumerate(zip(sources.logs, names, strict=True))}
    return text, members | _list_of(removed), place, removed


def _of_result(source: Path, name: str, redactor: Redactor | None) -> _Made:
    """What `minify` or `bench` said, taken apart, redacted, and said again."""
    facts, told = _json_file(source / name), _form(source)
    programs = {item: _text_file(source / item) for item in _PROGRAMS if (source / item).is_file()}
    files = _frames(facts)
    place = repository.of_layer(facts, files) if name == RESULTS[0] else repository.of_benchmark(facts)
    removed = Removed(redacted=False)
    if redactor is not None:
        values = [facts, json.loads(document_json.dumps(told)), *programs.values()]
        for value in values:
            redactor.learn_value(value)
        facts = redactor.value(facts, name)
        programs = {element: redactor.text(text, element) for element, text in programs.items()}
        told = _redacted(told, redactor)
        place = _named(place, redactor)
        removed = Removed(rows=redactor.rows())
    text = form.fitting(lambda limit, error: form.of_document(told, place, removed, source=limit, error=error))
    drawn = {f"pictures/{number}.svg": svg for number, svg in enumerate(svg for section in told.sections for svg, _ in section.pictures)}
    members = {name: json.dumps(facts, indent=1) + "\n", "report.html": result_page.render(told), **programs, **drawn}
    return text, members | _list_of(removed), place, removed


def _named(place: repository.Repository, redactor: Redactor) -> repository.Repository:
    """A package may have the name of somebody's company."""
    return replace(place, name=place.name and redactor.text(place.name, "form"), why=redactor.text(place.why, "form"))


def _redacted(told: Document, redactor: Redactor) -> Document:
    """The document without secrets: each text of it, and its pictures written again."""
    bare = replace(told, sections=tuple(replace(section, pictures=()) for section in told.sections))
    shown = document_json.loads(json.dumps(redactor.value(json.loads(document_json.dumps(bare)), FORM)))
    pairs = zip(told.sections, shown.sections, strict=True)
    sections = (
        replace(new, pictures=tuple((redacted_svg(svg, redactor), redactor.text(alt, "picture")) for svg, alt in old.pictures))
        for old, new in pairs
    )
    return replace(shown, sections=tuple(sections))


def _list_of(removed: Removed) -> dict[str, str]:
    """`removed.json`: kinds, places and counts, never a value."""
    rows = [{"kind": kind, "where": where, "times": times} for kind, where, times in removed.rows]
    return {
        "removed.json": json.dumps({"redacted": removed.redacted, "removed": rows, "left_out": dict(removed.left_out or {})}, indent=1)
        + "\n"
    }


def _frames(facts: Mapping[str, Any]) -> list[str]:
    """The files of the error's traceback, the innermost last, without ours."""
    lines = str(facts.get("error") or "").split("\n")
    return [line.split('"')[1] for line in lines if line.strip().startswith('File "') and line.count('"') > 1 and "/dynadiag/" not in line]


def _form(source: Path) -> Document:
    path = source / "form.json"
    if not path.is_file():
        raise UnreadableInputError(
            f"{shown(source)} has no form.json: it was made by an older dynadiag or did not end; run the command again"
        )
    try:
        return document_json.loads(_text_file(path))
    except ValueError as error:
        raise UnreadableInputError(f"{shown(path)} is damaged ({error}): run the command again") from None


def _json_file(path: Path) -> Any:
    try:
        found = json.loads(_text_file(path))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UnreadableInputError(f"{shown(path)} is damaged: run the command again")
    return found


def _text_file(path: Path) -> str:
    try:
        data = read_small(path, _LARGEST_MEMBER + 1)
    except OSError as error:
        raise UnreadableInputError(f"cannot read {shown(path)}: {error.strerror or error}") from None
    if len(data) > _LARGEST_MEMBER:
        raise UnreadableInputError(f"{shown(path)} is too long to be sent ({len(data) >> 20} MiB)")
    return data.decode("utf-8", "replace")


def _zipped(members: Mapping[str, _Member]) -> tuple[bytes, tuple[str, ...]]:
    """The archive, and the members that have no room in it; logs come last."""
    stream, left_out = io.BytesIO(), []
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if isinstance(content, Path) and content.stat().st_size > _LARGEST_LOG:
                left_out.append(name)
                continue
            content = content.read_bytes() if isinstance(content, Path) else content
            data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as alone:
                alone.writestr(zipfile.ZipInfo(name, _WHEN), data, zipfile.ZIP_DEFLATED)
            if stream.tell() + packed.tell() > LARGEST_BUNDLE_BYTES:
                left_out.append(name)
            else:
                archive.writestr(zipfile.ZipInfo(name, _WHEN), data, zipfile.ZIP_DEFLATED)
    return stream.getvalue(), tuple(left_out)


# A drawing of ours without private details: its texts replaced, and all of it written again through the same wall.

_LONGEST = 16 << 20


def redacted_svg(text: str, redactor: Redactor) -> str:
    """The drawing with redacted texts; what is none of ours becomes an empty picture that says so."""
    try:
        if len(text) > _LONGEST or "<!" in text:
            raise ValueError("no drawing of ours")
        root = ElementTree.fromstring(text)
        said = {"title": "", "desc": ""}
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            element.text = redactor.text(element.text, "picture") if element.text else None
            element.tail = None
            if element.tag in said and not said[element.tag]:
                said[element.tag] = element.text or ""
        for element in [item for item in root if item.tag in ("title", "desc", "style")]:
            root.remove(element)
        for name in ("role", "xmlns"):
            root.attrib.pop(name, None)
        return wall.sealed(root, said["title"], said["desc"])
    except (ElementTree.ParseError, ValueError):
        return f'<svg xmlns="{wall.NAMESPACE}" width="10" height="10"><title>left out: not a drawing of dynadiag</title></svg>'
