"""The table of `dynadiag fix` on models of transformers 4.52.4, whose breaks stand in the library: before and after, one row a model.

    bash benchmarks/hugging_face_setup.sh
    .venv-hugging-face/bin/python benchmarks/fix_hugging_face.py [--unsafe] [NAME ...]

The patch is applied in a copy of the script, and the patched one run beside the original: what they print has to be the same.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = Path(__file__).with_name("hugging_face_models.py")


def row(name: str, *, unsafe: bool) -> str:
    """The row of one model."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        script = shutil.copy(MODELS, folder)
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        words = ["-m", "dynadiag", "fix", *(["--unsafe"] if unsafe else []), "--out", "run", script, name]
        done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
        result = folder / "run" / "fix.json"
        if not result.exists():
            return f"{name:16} {(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}"
        told = json.loads(result.read_text())
        before, after = told["before"], told["after"] or told["before"]
        same = "no patch"
        if told["patch"]:
            plain = _printed(script, name)
            subprocess.run(["git", "apply", "run/fixes.patch"], cwd=folder, check=True)
            same = "printed the same" if _printed(script, name) == plain else "PRINTED OTHERWISE"
        counts = " ".join(f"{one} {before[one]} -> {after[one]}," for one in ("graph_break_events", "recompiles", "fallbacks"))
        return f"{name:16} {counts} {same}, {told['cpu']['cpu_s']:.0f} CPU s for {told['cpu']['runs']} runs"


def _printed(script: str, name: str) -> str:
    return subprocess.run([sys.executable, script, name], capture_output=True, text=True, check=True).stdout


def main(words: list[str]) -> None:
    """Print the rows of the named models, or of all."""
    names = [one for one in words if not one.startswith("-")] or re.findall(r"\w+", re.search(r"MODELS = \((.*)\)", MODELS.read_text())[1])
    for name in names:
        print(row(name, unsafe="--unsafe" in words), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
