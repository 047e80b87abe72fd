"""A start of the program with new texts of its files, which stay as they are: `python -m dynadiag.start.edited_program JOB`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dynadiag.capture import overlay
from dynadiag.capture.script import UserCodeError, run_script
from dynadiag.files import write_inside


@dataclass(frozen=True, kw_only=True)
class EditedProgram:
    """A script, or the file of a module with its name, its arguments, and new texts by path."""

    script: str
    arguments: tuple[str, ...]
    texts: Mapping[str, str]
    module: str | None = None

    def command(self, python: str, folder: Path) -> tuple[str, ...]:
        """The command line that runs it; what is to be run is written into a folder of ours."""
        job = {"script": self.script, "arguments": self.arguments, "texts": dict(self.texts), "module": self.module}
        return python, "-m", __name__, str(write_inside(folder, "edited-program.json", json.dumps(job)))


def main() -> int:
    """Run the program of a job as `__main__`."""
    job = json.loads(Path(sys.argv[1]).read_text())
    del sys.path[0]  # of `-m`: the folder of now, which the program itself does not have there
    sys.argv = [job["script"], *job["arguments"]]
    overlay.install(job["texts"])
    try:
        return 1 if run_script(job["script"], job["arguments"], watched={}, module=job["module"]) else 0
    except UserCodeError as error:
        traceback.print_exception(error.__cause__ or error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
