"""The one place where clauses become sentences: each clause one sentence, the same in the terminal, in Markdown, pages and JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dynadiag.model import clauses as c
from dynadiag.model.location import Location

_ENDS = (".", "?", "!")
_ENOUGH = "Nothing has to change while there are fewer versions than the limit"


def sentences(clauses: Iterable[c.Clause]) -> str:
    """All of them, one after the other."""
    return " ".join(filter(None, map(sentence, clauses)))


def sentence(clause: c.Clause) -> str:
    """The clause with a capital letter where it begins with a word of ours, and with its full stop; empty where it claims nothing."""
    text = _WRITERS[type(clause)](clause).strip()
    return text if not text or text.endswith(_ENDS) else f"{text}."


def capital(text: str) -> str:
    """The text with its first letter as a capital, unless it begins with a name: `torch` and what has a dot in it, say."""
    word = next(iter(text.split()), "")
    return f"{text[:1].upper()}{text[1:]}" if word.isalpha() and word != "torch" else text


def _text(clause: Any) -> str:
    return str(clause.text)


def _quoted(clause: c.Quoted) -> str:
    return f"{clause.by}: {clause.text}" if clause.by else clause.text


def _counted(clause: c.Counted) -> str:
    at = "" if clause.places is None else f" at {plural(clause.places, clause.place_noun)}"
    on = f" on {clause.who}" if clause.who else ""
    named = f": {', '.join(clause.named)}" if clause.named else ""
    return f"{plural(clause.count, clause.noun)}{at}{on}{named}"


def _stopped_at(clause: c.StoppedAt) -> str:
    how = "inside the call" if clause.inside else "where it is called"
    return f"Dynamo stops {how}, at {listed(unique(map(short_place, clause.places)))}"


def _left_eager(clause: c.LeftEager) -> str:
    are = "is" if len(clause.functions) == 1 else "are"
    return f"Because of this, {listed(clause.functions)} {are} not compiled" + (f" ({clause.reason})" if clause.reason else "")


def _graphs_around(clause: c.GraphsAround) -> str:
    if clause.between:
        return f"Graphs between them: {listed(unique((*clause.before, *clause.after))) or 'none'}"
    return f"Graphs before it: {listed(clause.before) or 'none'}; after it: {listed(clause.after) or 'none'}"


def _resumed_in(clause: c.ResumedIn) -> str:
    parts = [
        *([f"continues in {plural(clause.compiled, 'compiled resume function')}"] if clause.compiled else []),
        *([f"{plural(clause.not_compiled, 'resume function')} not compiled"] if clause.not_compiled else []),
    ]
    return capital("; ".join(parts))


def _compiled_apart(clause: c.CompiledApart) -> str:
    breaks = "graph break" if len(clause.findings) == 1 else "graph breaks"
    first = ": cure that first" if len(clause.findings) == 1 else ": cure those first"
    return f"It is compiled as a function of its own because of {breaks} {listed(clause.findings)}{first if clause.curable else ''}"


def _compile_seconds(clause: c.CompileSeconds) -> str:
    these = "This recompile" if clause.recompiles == 1 else "These recompiles"
    return f"{these} took {clause.seconds:.2f} s of compile time (measured)"


def _versions_used(clause: c.VersionsUsed) -> str:
    versions = plural(clause.versions, "compiled version")
    if clause.raised:
        return "Under `fullgraph=True` the next variant raised an error instead of running eagerly"
    if clause.refused:
        match = f"match none of the {versions}" if clause.versions else "match no compiled version"
        return (
            f"torch refused {clause.refused} of these recompiles and no longer compiles it: calls that {match} run eagerly from then on, "
            "and so does what they call"
        )
    if clause.unfinished:
        of = "" if clause.limit is None else f" of at most {clause.limit}"
        unfinished = plural(clause.unfinished, "compilation")
        return f"The log ends before {unfinished} of it finished; by then it had {clause.versions}{of} compiled versions"
    if clause.limit is None:
        return f"It has {versions}; the recompile limit is not in the log"
    return f"It has {clause.versions} of at most {clause.limit} compiled versions"


def _ends_recompiles(clause: c.EndsRecompiles) -> str:
    every = "both" if clause.of == 2 else f"all {clause.of}"
    some = f"{'at least ' if clause.at_least else ''}{clause.count} of these {clause.of}"
    known = "" if clause.at_least else ", as far as torch names their causes"
    return f"This ends {some if clause.count < clause.of else every} recompiles{known}"


def _unadvised(clause: c.Unadvised) -> str:
    if clause.but_ideas:
        return f"No change is established{f': {clause.reason}' if clause.reason else ''}"
    return f"Nothing is advised{f' for {clause.of}' if clause.of else ''}{f': {clause.reason}' if clause.reason else ''}"


def _settled(clause: c.Settled) -> str:
    return _ENOUGH if clause.enough else f"No change is needed: {clause.reason}"


_WRITERS: Mapping[type[c.Clause], Callable[[Any], str]] = {
    c.Happened: _text,
    c.Cause: _text,
    c.Effect: _text,
    c.Basis: _text,
    c.Doubt: _text,
    c.Quoted: _quoted,
    c.Counted: _counted,
    c.OnProcesses: lambda clause: f"On {clause.who}",
    c.StoppedAt: _stopped_at,
    c.LeftEager: _left_eager,
    c.GraphsAround: _graphs_around,
    c.ResumedIn: _resumed_in,
    c.CompiledApart: _compiled_apart,
    c.CompileSeconds: _compile_seconds,
    c.VersionsUsed: _versions_used,
    c.EndedProgram: lambda clause: "This exception ended the program",
    c.SameFor: lambda clause: f"The same for {listed(clause.places)}",
    c.StillBreaks: lambda clause: f"{capital(clause.what)} still breaks the graph",
    c.EndsRecompiles: _ends_recompiles,
    c.Unadvised: _unadvised,
    c.Settled: _settled,
}


# The few words that every sentence needs: places, counts and lists that stay short.

_OF_PACKAGES = frozenset({"__init__.py", "__main__.py"})
"""Files that every package has, so that their name alone says nothing."""


def plural(count: int, singular: str, many: str | None = None) -> str:
    """The count with its noun: "1 event", "3 events"."""
    return f"{count} {singular if count == 1 else many or singular + 's'}"


def base_name(path: str) -> str:
    """The last part of a path of any system: logs come from foreign machines."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def short_place(location: Location | None) -> str:
    """`train.py:12`, or `train.py` without a line, or "an unknown place"; of a package's own file also the package: `app/__init__.py:3`."""
    if location is None:
        return "an unknown place"
    name = base_name(location.file)
    if name in _OF_PACKAGES and (package := base_name(location.file.replace("\\", "/").rstrip("/")[: -len(name) - 1])):
        name = f"{package}/{name}"
    return name if location.line is None else f"{name}:{location.line}"


_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z`])")


def excerpt(text: str, limit: int) -> str:
    """The text on one line; of a longer one than `limit` the beginning up to a whole word, "...", and the last sentence if it is short.

    An error of torch's says in its last sentence what to do.
    """
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    *others, last = _SENTENCE_END.split(line)
    end = f" {last}" if others and len(last) < limit // 2 else ""
    kept, _, cut = line[: limit - 2 - len(end)].rpartition(" ")
    return f"{kept or cut[: limit - 4 - len(end)]} ...{end}"


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """The values once each, in their first order."""
    return tuple(dict.fromkeys(values))


def listed(values: Sequence[str], *, limit: int = 3, between: str = ", ") -> str:
    """A list that stays short: "a, b, c and 4 more"."""
    shown = between.join(values[:limit])
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"
