"""The findings are outside CI, since they install packages; what can be checked without that is their form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "findings"
SCRIPTS = sorted(path for path in FOLDER.glob("*.sh") if path.name != "common.sh")
LISTED = re.compile(r"^\| \[(\w+)\]\((\w+)\.sh\) \| ([^|]+) \| ", re.MULTILINE)


def test_the_page_lists_every_finding_once() -> None:
    rows = LISTED.findall((FOLDER / "README.md").read_text("utf-8"))
    assert sorted(name for name, _, _ in rows) == [path.stem for path in SCRIPTS]
    assert all(name == target for name, target, _ in rows)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_states_guess_and_behaviour_and_pins_what_it_installs(script: Path) -> None:
    text = script.read_text("utf-8")
    head = text.partition('. "$(dirname "$0")/common.sh"')[0]
    assert head != text and all(f"\n# {word}: " in head for word in ("Guess", "Seen", "Met by"))
    pins = [pin for line in re.findall(r"^install (.+)$", text, re.MULTILINE) for pin in line.split()]
    assert pins and all(re.fullmatch(r"[a-z][a-z0-9-]*==[0-9.]+", pin) for pin in pins)
    rows = {name: versions for name, _, versions in LISTED.findall((FOLDER / "README.md").read_text("utf-8"))}
    versions = [pin.partition("==")[2] for pin in pins if pin.startswith("torch==")]
    assert versions and all(version in head and version in rows[script.stem] for version in versions)
    assert re.search(r"assert |raise SystemExit|^\[ ", text, re.MULTILINE), "nothing that can fail"
    assert "dynadiag" not in text and "://" not in text
