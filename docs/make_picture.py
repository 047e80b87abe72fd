"""Draws the README's picture from a real run: `python docs/make_picture.py OUT.svg` (`make readme-picture`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dynadiag
from dynadiag.render.screenshot import terminal_svg

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = "samples/bert_train_step.py"
RUN = "dynadiag-runs/readme-picture"
COLUMNS = 90
LINES = 36


def main(out: Path) -> None:
    """Record the sample as `make demo` does, and write its report as terminal output to `out`."""
    # Relative names of the interpreter and of the run, so that the picture shows no path of the machine that drew it.
    python = Path(sys.executable).relative_to(ROOT)
    options = ["--no-pictures", "--force", "--out", RUN, "--python", str(python)]
    subprocess.run([sys.executable, "-m", "dynadiag", "explain", *options, SAMPLE], cwd=ROOT, check=True)
    report = dynadiag.load(ROOT / RUN)
    picture = terminal_svg(report, width_columns=COLUMNS, lines=LINES, title=f"dynadiag explain {SAMPLE}", base=ROOT)
    if str(ROOT) in picture or str(Path.home()) in picture:
        sys.exit("the picture shows a path of this machine, so it is not written")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
