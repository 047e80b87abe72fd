"""Draws the README's picture from a real run: `python docs/make_picture.py OUT.svg` (`make readme-picture`)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import dynadiag
from dynadiag.render.screenshot import terminal_svg

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = "samples/bert_train_step.py"
COLUMNS = 100
LINES = 60


def main(out: Path) -> None:
    """Record the sample as `make demo` does, and write its report as terminal output to `out`."""
    with tempfile.TemporaryDirectory(prefix="dynadiag-picture-") as folder:
        run = Path(folder, "run")
        command = [sys.executable, "-m", "dynadiag", "explain", "--no-pictures", "--out", str(run), SAMPLE]
        subprocess.run(command, cwd=ROOT, check=True)
        picture = terminal_svg(dynadiag.load(run), width_columns=COLUMNS, lines=LINES, title=f"dynadiag explain {SAMPLE}", base=ROOT)
    if str(ROOT) in picture or str(Path.home()) in picture:
        sys.exit("the picture shows a path of this machine, so it is not written")
    out.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
