"""Records the first and the second start of each plant: `python -m benchmarks.start_causes.record FOLDER [held_out | fresh]`.

The first start of a program is recorded once and its cache folder kept, so that all its plants begin with the same entries.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.start_causes import fresh, held_out, programs
from benchmarks.start_causes.programs import Plant
from dynadiag import record

SEEDS = ("1", "2", "1")
PARTS = {"programs": programs, "held_out": held_out, "fresh": fresh}


def start(script: Path, out: Path, cache: Path, variables: dict[str, str], seed: str, python: str | None) -> None:
    """One start, recorded as `dynadiag start` does it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": seed, **variables}
    options = record.RecordOptions(out=out, force=True, key_parts=True, environment=settings, python=python, timeout_s=900)
    done = record.record(record.Target(kind="script", argv=(str(script),)), options)
    print(out.parent.name, out.name, done.exit_status, flush=True)


def edited(text: str, edits: Iterable[tuple[str, str]], name: str) -> str:
    """The program with all edits; each must fit exactly once."""
    for old, new in edits:
        if text.count(old) != 1:
            raise SystemExit(f"{name}: {old!r} is there {text.count(old)} times")
        text = text.replace(old, new)
    return text


def record_plant(plant: Plant, text: str, folder: Path, python: str | None) -> None:
    """The second start of one plant, and a third with the first one's hash seed where a program differs by itself."""
    home = folder / "programs" / plant.program
    cache, kept = home / "cache", home / "kept"
    script = home / f"{plant.program}.py"
    place = folder / "runs" / plant.name.replace(" ", "-")
    if (place / "new").exists():
        return
    own = plant.both or plant.first_variables
    if own:
        shutil.rmtree(cache, ignore_errors=True)
        script.write_text(edited(text, plant.both, plant.name))
        start(script, place / "old", cache, dict(plant.first_variables), SEEDS[0], python)
    else:
        script.parent.mkdir(parents=True, exist_ok=True)
        if not kept.exists():
            shutil.rmtree(cache, ignore_errors=True)
            script.write_text(text)
            start(script, home / "old", cache, {}, SEEDS[0], python)
            shutil.copytree(cache, kept)
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(kept, cache)
        shutil.copytree(home / "old", place / "old")
        script.write_text(edited(text, plant.edits, plant.name))
    used = cache
    if plant.between == "another folder":
        used = home / "other"
        shutil.rmtree(used, ignore_errors=True)
    elif plant.between == "empty the folder":
        shutil.rmtree(cache)
    elif plant.between == "delete the graphs":
        shutil.rmtree(cache / "fxgraph")
    start(script, place / "new", used, dict(plant.variables), SEEDS[1], python)
    if own:
        start(script, place / "again", used, dict(plant.variables), SEEDS[2], python)


def main() -> None:
    """Record all plants of a part that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", nargs="?", default="programs", choices=tuple(PARTS))
    parser.add_argument("--python")
    arguments = parser.parse_args()
    module = PARTS[arguments.part]
    for plant in sorted((*module.PLANTS, *module.UNCHANGED), key=lambda item: item.program):
        record_plant(plant, module.PROGRAMS[plant.program], arguments.folder.absolute() / arguments.part, arguments.python)
    print("recorded", file=sys.stderr)


if __name__ == "__main__":
    main()
