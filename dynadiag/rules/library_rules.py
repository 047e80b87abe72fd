"""What the atlas says of a library, for `dynadiag rule LIBRARY` and for `docs/libraries.md`.

`python -m dynadiag.rules.library_rules > page.md && mv page.md docs/libraries.md` writes the page; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynadiag.rules.libraries.entries import Check, Edit, Entry, Library, all_libraries

_HEAD = """# Libraries under torch.compile

Made by `python -m dynadiag.rules.library_rules`; do not edit.

What functions of libraries do under `torch.compile`, and the cure on your own line. `dynadiag explain` advises it where a function of the
library is involved and the recorded versions of the library and of torch lie between those that are named; `dynadiag fix` applies and
proves it where it can be written by itself. `dynadiag rule LIBRARY` prints one library. `benchmarks/library_atlas.py` runs each entry
before and after the cure, compares the results, and fails when a release changes what torch counts. All counts are torch's own, with the
back end `aot_eager` on a CPU.
"""


_HARM = ": it does harm, the program does not have the result that it has in eager"


def library_named(name: str) -> Library | None:
    """The library with this name, as it is installed or imported."""
    wanted = _normal(name)
    return next((item for item in all_libraries() if wanted in (_normal(item.library), _normal(item.package))), None)


def library_title(library: Library) -> str:
    """The library and how many entries the atlas has of it."""
    count = len(library.entries)
    return f"{count} {'entry' if count == 1 else 'entries'} of the atlas of libraries"


def library_sections(library: Library) -> tuple[tuple[str, str], ...]:
    """A name and a text for each entry."""
    return tuple((entry.function, "\n".join(f"{name}: {text}" for name, text in _facts(entry))) for entry in library.entries)


def page() -> str:
    """The page of all libraries, as Markdown."""
    libraries = tuple(all_libraries())
    count = sum(len(library.entries) for library in libraries)
    rows = [_HEAD, f"{count} entries of {len(libraries)} libraries.\n"]
    for library in libraries:
        rows.append(f"## {library.library}\n")
        for entry in library.entries:
            rows.append(f"### `{entry.function}`: {entry.name}\n")
            rows += [f"* **{name}:** {text}" for name, text in _facts(entry)]
            rows.append("")
    return "\n".join(rows)


def _facts(entry: Entry) -> Iterator[tuple[str, str]]:
    yield "Under torch.compile", f"{entry.happens}: {entry.cause}"
    yield "Cure", entry.cure
    yield "It also changes", entry.changes or "nothing"
    yield "dynadiag fix", "left to you" if entry.edit is None else _written(entry.edit)
    for check in entry.checked:
        yield f"Checked on {check.library}, torch {check.torch}", _counted(check)
        for hint in check.hints:
            yield f"Torch's hint `torch._dynamo.config.{hint.option} = True`", f"{hint.counts}{_HARM if hint.differs else ''}"


def _written(edit: Edit) -> str:
    if edit.code is not None:
        rows = "; ".join(edit.code.strip().splitlines())
        return f"puts `{rows}` {'at the top of the script' if edit.at == 'top' else 'behind the imports of the script'}"
    return f"adds `{edit.argument}={edit.value}` to the calls of `{(edit.call or '').rpartition('.')[2]}`"


def _counted(check: Check) -> str:
    return f"{check.before}; with the cure {check.after}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


if __name__ == "__main__":
    print(page(), end="")
