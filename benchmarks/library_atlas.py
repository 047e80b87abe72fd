"""Runs each entry of the atlas before and after its cure, and compares what torch counts with what the entry says.

    python benchmarks/library_atlas.py ENVIRONMENT.txt... [--only PACKAGE...] [--keep FOLDER] [--write]

Each ENVIRONMENT.txt of `benchmarks/atlas` (`newest.txt`; `older.txt` with an older torch; `older_libraries.txt` with the newest torch) pins
packages, which are installed into a folder of their own: a temporary one, or FOLDER with `--keep`, which is used again. Exit status 1 where
a count, an exception or a result is another one than the entry says, where the functions that the entry names are not on torch's stack, or
where the cure does not cure. `--write` writes the counts into the entries. Outside CI: it takes an hour of CPU time.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dynadiag.rules.libraries.entries import Check, Counts, Entry, Hint, Library, all_libraries, read_library
from dynadiag.rules.libraries.names import FOLDER

_RUNNER = Path(__file__).with_name("atlas") / "run_programs.py"


def main() -> int:
    """Run the sweep; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environments", nargs="+", type=Path)
    parser.add_argument("--only", nargs="*", help="packages, as they are imported, or package/entry")
    parser.add_argument("--keep", type=Path, help="a folder for the environments, which are used again")
    parser.add_argument("--write", action="store_true", help="write the counts into the entries")
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for pins in options.environments:
            python = environment(pins, options.keep or Path(folder))
            versions = installed(python)
            for library, entry, check, problem in checks(python, versions, options.only):
                known = next((old for old in entry.checked if (old.library, old.torch) == (check.library, check.torch)), None)
                problem = (
                    problem or unexpected(entry, check) or ("" if known in (check, None) or options.write else f"it was {shown(known)}")
                )
                wrong += bool(problem)
                key = f"{library.package}/{entry.name}"
                print(
                    f"{'WRONG' if problem else 'ok':5} {key} {check.library}, torch {check.torch}: {shown(check)} {problem}".rstrip(),
                    flush=True,
                )
                if options.write and not problem:
                    write(library, entry, check)
    return int(bool(wrong))


def environment(pins: Path, folder: Path) -> Path:
    """The Python of an environment with these packages."""
    home = folder / pins.stem
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        if uv := shutil.which("uv"):
            subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)], check=True)
            subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(pins)], check=True)
        else:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", "-r", str(pins)], check=True)
        (home / "installed").touch()
    return python


def installed(python: Path) -> Mapping[str, str]:
    """The versions of what an environment has, by normal names."""
    code = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
    found = json.loads(subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout)
    return {_normal(name): version.partition("+")[0] for name, version in found}


def checks(python: Path, versions: Mapping[str, str], only: Sequence[str] | None) -> Iterator[tuple[Library, Entry, Check, str]]:
    """Each entry whose library the environment has, with what torch counted and what went wrong."""
    wanted = {
        f"{library.package}/{entry.name}": (library, entry)
        for library in all_libraries()
        for entry in library.entries
        if _normal(library.library) in versions and (not only or library.package in only or f"{library.package}/{entry.name}" in only)
    }
    sent = [
        {"key": key, "before": entry.before, "after": entry.after, "apart": _apart(entry), "through": entry.through}
        for key, (_, entry) in wanted.items()
    ]
    with subprocess.Popen([str(python), str(_RUNNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(sorted(sent, key=lambda item: item["apart"])))
        process.stdin.close()
        for line in process.stdout:
            told = json.loads(line)
            library, entry = wanted[told["key"]]
            failed = told.get("failed", "")
            counts = [Counts(**told.get(name, {"breaks": -1, "graphs": -1, "recompiles": -1})) for name in ("before", "after")]
            hints = tuple(Hint(**{**hint, "counts": Counts(**hint["counts"])}) for hint in told.get("hints", ()))
            check = Check(
                library=versions[_normal(library.library)], torch=versions["torch"], before=counts[0], after=counts[1], hints=hints
            )
            differs = told.get("differs", "")
            failed = failed or (f"not on its stack: {', '.join(told['unseen'])}" if told.get("unseen") else "")
            yield library, entry, check, failed or (f"the result differs: {differs}" if differs and entry.changes is None else "")


def _apart(entry: Entry) -> bool:
    return entry.edit is not None and entry.edit.code is not None


def unexpected(entry: Entry, check: Check) -> str:
    """Why a run does not show what the entry says; "" where it does."""
    before, after = check.before, check.after
    if after.error is not None:
        return "the cured program raises"
    if entry.shows == "error":
        return "" if before.error is not None else "the program does not raise before the cure"
    if before.error is not None:
        return "the program raises before the cure"
    counted = [(count.recompiles if entry.shows == "recompile" else count.breaks) for count in (before, after)]
    return "" if counted[1] < counted[0] else f"the cure ends no {entry.shows}"


def shown(check: Check) -> str:
    """Both counts in a line."""
    return f"{check.before} -> {check.after}"


def write(library: Library, entry: Entry, check: Check) -> None:
    """Put the counts into the file of the library, in the place of those of the same versions."""
    path = FOLDER / f"{library.package}.toml"
    head, name, rest = path.read_text("utf-8").partition(f'name = "{entry.name}"\n')
    block, mark, below = rest.partition("\n[[entries]]\n")
    kept = [old for old in _checked_by_now(library, entry) if (old.library, old.torch) != (check.library, check.torch)]
    rows = "".join(f"  {_row(item)},\n" for item in sorted((*kept, check), key=lambda item: (item.torch, item.library), reverse=True))
    block = re.sub(r"^checked = \[\n.*?^\]\n", "", f"{block}\n", flags=re.MULTILINE | re.DOTALL).rstrip("\n")
    edit = block.find("\n[entries.edit]\n")
    fields, table = (block, "") if edit < 0 else (block[:edit].rstrip("\n"), f"\n{block[edit:]}")
    path.write_text(f"{head}{name}{fields}\nchecked = [\n{rows}]{table}\n{mark}{below}", "utf-8")


def _checked_by_now(library: Library, entry: Entry) -> tuple[Check, ...]:
    """What the file says: the sweep of another environment may have written to it."""
    read_library.cache_clear()
    found = read_library(library.package)
    return next((item.checked for item in (() if found is None else found.entries) if item.name == entry.name), ())


def _row(check: Check) -> str:
    told = ", ".join(map(_hint, check.hints))
    hints = f", hints = [{told}]" if told else ""
    counts = f"before = {_counts(check.before)}, after = {_counts(check.after)}"
    return f'{{ library = "{check.library}", torch = "{check.torch}", {counts}{hints} }}'


def _hint(hint: Hint) -> str:
    return f'{{ option = "{hint.option}", counts = {_counts(hint.counts)}, differs = {str(hint.differs).lower()} }}'


def _counts(counts: Counts) -> str:
    error = "" if counts.error is None else f', error = "{counts.error}"'
    return f"{{ breaks = {counts.breaks}, graphs = {counts.graphs}, recompiles = {counts.recompiles}{error} }}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
