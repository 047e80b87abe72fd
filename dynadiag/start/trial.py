"""The program started with the changes for its causes: whether they end the misses, and the patch that has them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dynadiag.changes.edits import patch
from dynadiag.errors import DynadiagError
from dynadiag.facts.program_end import failure_of
from dynadiag.files import write_inside
from dynadiag.model.report import Report
from dynadiag.model.run import Run
from dynadiag.scratch import scratch
from dynadiag.start.compare import compare
from dynadiag.start.cures import Change, changes_of
from dynadiag.start.repeated_blocks import class_of, is_cold, one_block_text
from dynadiag.start.result import Compilation, Cured, OneBlock, StartResult, TriedChange
from dynadiag.start.session import Session
from dynadiag.start.setting_lines import Source

_MOST_ROUNDS = 3
"""A bypass hides what else keeps a graph from the cache, so what is cold with the changes is asked for its causes again."""


def try_changes(
    session: Session, before: StartResult, sources: Sequence[Source], read: Callable[[Path], Report], shown: Callable[[Path], str]
) -> Cured:
    """What the second start comes to with all changes that its causes have. `sources` are the files that may be changed."""
    old = {source.path: source.text for source in sources if source.path is not None}
    changes: list[Change] = []
    after, last = before, None
    for _ in range(_MOST_ROUNDS):
        texts, variables = _together(changes)
        more = changes_of(after, [_changed(source, texts) for source in sources], {**os.environ, **variables})
        known = {(change.kind, change.said) for change in changes}
        more = [change for change in more if change.texts or (change.kind, change.said) not in known]
        if not more:
            break
        changes += more
        texts, variables = _together(changes)
        with scratch("start") as folder:
            paths = session.changed_starts(texts, variables, folder)
        try:
            after = compare(
                *map(read, paths),
                old_path=shown(paths[0]),
                new_path=shown(paths[1]),
                same_program=True,
                warm_up=before.warm_up,
                cache=before.cache,
            )
        except DynadiagError as error:
            return Cured(why_not=f"with the changes {error.message}")
        last = paths[1]
        if not (after.missed or after.late) or after.new.failed is not None:
            break
    if last is None:
        return Cured(why_not="for none of its causes is there a change that can be tried")
    texts, _ = _together(changes)
    return Cured(
        changes=tuple(_tried(changes, before, after, old)),
        missed=after.missed,
        late=len(after.late),
        second_s=after.second_s,
        why_not=f"with the changes the program {after.new.failed}" if after.new.failed is not None else None,
        patch=shown(_write_patch(last, old, texts)) if texts else None,
    )


def try_one_block(
    session: Session, first: Run, sources: Sequence[Source], read: Callable[[Path], Report], shown: Callable[[Path], str]
) -> OneBlock | None:
    """What two starts on a new cache folder take with one block compiled for all layers; None where the program has no such layers.

    `first` is the first start of the program as it is; where it took something from the caches, there is nothing to compare with.
    """
    found = one_block_text(first, sources) if is_cold(first) else None
    if found is None:
        return None
    blocks, source, text = found
    assert source.path is not None
    old = {source.path: source.text}
    lines = tuple(_changed_lines({source.path: text}, old))
    told = OneBlock(holder=blocks.holder, block=class_of(blocks), count=len(blocks.classes), lines=lines)
    with scratch("start") as folder:
        paths = replace(session, cache=Path(folder, "cache")).changed_starts({source.path: text}, {}, Path(folder), "one-block")
    reports = [read(path) for path in paths]
    failed = next((failure for item in reports if (failure := failure_of(item.run.info)) is not None), None)
    if failed is not None or not all(item.run.frames for item in reports):
        return replace(told, why_not=f"with the change the program {failed or 'compiles nothing'}")
    return replace(
        told,
        first_s=reports[0].summary.compile_s,
        second_s=reports[1].summary.compile_s,
        compilations=sum(frame.outcome == "compiled" for frame in reports[1].run.frames),
        patch=shown(_write_patch(paths[1], old, {source.path: text})),
    )


def _together(changes: Sequence[Change]) -> tuple[dict[Path, str], dict[str, str]]:
    """The texts and variables of all changes; each was made on top of those before."""
    texts = {path: text for change in changes for path, text in change.texts.items()}
    return texts, {name: value for change in changes for name, value in change.variables.items()}


def _changed(source: Source, texts: Mapping[Path, str]) -> Source:
    return source if source.path is None else replace(source, text=texts.get(source.path, source.text))


def _tried(changes: Sequence[Change], before: StartResult, after: StartResult, texts: Mapping[Path, str]) -> Iterator[TriedChange]:
    """Each change with its lines. It cured its causes if none of their kind is left, or everything is warm that they kept cold."""
    texts = dict(texts)
    left = {cause.kind for cause, _ in after.causes()}
    cold = {_identity(item) for item in after.compilations if item.cold or item.late}
    for change in changes:
        lines = tuple(_changed_lines(change.texts, texts))
        texts |= change.texts
        kinds = {cause.kind for cause in change.causes}
        concerned = {_identity(item) for item in before.compilations if kinds & {cause.kind for cause in item.causes} or item.late}
        cured = after.new.failed is None and (not kinds & left if kinds else not cold & concerned)
        yield TriedChange(kind=change.kind, said=change.said, lines=lines, variables=change.variables, cured=cured)


def _identity(item: Compilation) -> tuple[str, str | None, int | None]:
    return item.function, None if item.place is None else item.place.file, item.rank


def _changed_lines(new: Mapping[Path, str], texts: Mapping[Path, str]) -> Iterator[str]:
    for path, text in new.items():
        rows = difflib.unified_diff(texts[path].splitlines(), text.splitlines(), n=0, lineterm="")
        yield from (row for row in rows if not row.startswith(("---", "+++", "@@")))


def _write_patch(folder: Path, old: Mapping[Path, str], new: Mapping[Path, str]) -> Path:
    root = Path(os.path.commonpath([Path.cwd(), *new]))
    before, after = ({str(path): text for path, text in texts.items()} for texts in (old, new))
    return write_inside(folder, "cures.patch", patch(before, after, root))
