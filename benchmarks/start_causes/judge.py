"""Judges what `dynadiag start` says of recorded plants: `python -m benchmarks.start_causes.judge FOLDER [held_out | fresh] [-v]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.start_causes.programs import Plant
from benchmarks.start_causes.record import PARTS, edited
from dynadiag import report, trace
from dynadiag.errors import DynadiagError
from dynadiag.start.compare import compare
from dynadiag.start.result import Cause, StartResult
from dynadiag.start.setting_lines import Source


def judge(plant: Plant, place: Path, text: str) -> tuple[bool, bool, StartResult]:
    """Whether the cause and its line are named, and whether anything else is."""
    text = edited(text, (*plant.both, *plant.edits), plant.name)
    again = trace.load(place / "again") if (place / "again").exists() else None
    sides = [report.build(trace.load(place / name)) for name in ("old", "new")]
    result = compare(
        sides[0],
        sides[1],
        old_path="old",
        new_path="new",
        sources=(Source(f"{plant.program}.py", text),),
        same_seed=again,
        same_program=again is not None,
    )
    causes = [cause for cause, _ in result.causes()]
    right = [cause for cause in causes if _is_right(plant, cause, text)]
    return bool(right) if plant.kind else result.missed == 0, any(cause.kind != plant.kind for cause in causes), result


def _is_right(plant: Plant, cause: Cause, text: str) -> bool:
    said = f"{cause.said} {cause.cure or ''} {'' if cause.place is None else cause.place.source}"
    if cause.kind != plant.kind or not all(word in said for word in plant.words):
        return False
    if plant.line is None:
        return True
    lines = [number for number, line in enumerate(text.split("\n"), 1) if plant.line in line]
    return cause.place is not None and cause.place.line in lines


def main() -> None:
    """Print what is wrong, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", nargs="?", default="programs", choices=tuple(PARTS))
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    module = PARTS[arguments.part]
    counts = [0, 0, 0]
    for plant in (*module.PLANTS, *module.UNCHANGED):
        place = arguments.folder / arguments.part / "runs" / plant.name.replace(" ", "-")
        if not (place / "new").exists():
            print(f"not recorded: {plant.name}")
            continue
        try:
            right, other, result = judge(plant, place, module.PROGRAMS[plant.program])
        except DynadiagError as error:
            print(f"{plant.name}: {error.message}")
            continue
        counts = [counts[0] + 1, counts[1] + right, counts[2] + other]
        if arguments.verbose or not right or other:
            print(f"{'right' if right else 'WRONG'}{', and something else' if other else ''}: {plant.name} ({plant.kind})")
            for cause, compilations in result.causes():
                where = "" if cause.place is None else f" at {cause.place.file}:{cause.place.line} `{cause.place.source}`"
                print(f"    {cause.kind}: {cause.said}{where} [{len(compilations)}]")
    print(f"{counts[1]} of {counts[0]} right; {counts[2]} name something else as well")


if __name__ == "__main__":
    main()
