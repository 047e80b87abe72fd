"""One change to try, and a finding for which there is none. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.changes.edits import Edit, Span


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One change to try: its edits, the findings (fingerprints) that it is to cure, and what it gives up (None: nothing).

    `spans` are the old lines of each edit. `gradients_why` is why it may not be tried where gradients flow; `branch` says that it takes
    the place of a branch; `attributes` may be bound to other tensors than before, `settings` are attributes that the change itself sets
    otherwise, or that follow from it, which are not compared.
    `of_backend`: it is about the back end, which no other may replace in the search. `moves_region`: something else is compiled than
    before, so that what is left is counted over the whole program. `first`: it is tried before all others.
    `leaves_rewrites`: it leaves findings to changes of their lines, and is tried with these.

    `layer`: its edits are of the program's own texts (0), or of these with what was kept in the layers before. `rows` are then the lines
    of the program's own texts where they begin, as far as these have them.
    """

    id: str
    slug: str
    text: str
    edits: tuple[Edit, ...]
    spans: tuple[Span, ...]
    cures: tuple[str, ...]
    gives_up: str | None = None
    gradients_why: str | None = None
    branch: bool = False
    attributes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    of_backend: bool = False
    moves_region: bool = False
    first: bool = False
    leaves_rewrites: bool = False
    layer: int = 0
    rows: tuple[int, ...] = ()

    @property
    def is_option(self) -> bool:
        """Whether only options of torch are set: no line of the program changes."""
        return all(not edit.old for edit in self.edits)


@dataclass(frozen=True, kw_only=True)
class Left:
    """A finding, and why nothing was tried for it."""

    fingerprint: str
    why: str
