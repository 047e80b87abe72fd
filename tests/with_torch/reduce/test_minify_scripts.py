"""A whole script reduced: breaks by id, recompiles and fallbacks, from the first run to a proven file."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from dynadiag.errors import NothingFoundError
from dynadiag.reduce.scripts.hunting import ScriptOptions, confirm
from dynadiag.reduce.scripts.oracle import Conditions, see
from dynadiag.reduce.scripts.program import parsed
from dynadiag.reduce.scripts.proving import prove
from dynadiag.reduce.scripts.writing import Header, reproducer

BREAKING = """
import torch

@torch.compile(backend="aot_eager")
def step(x):
    y = torch.relu(x) * 2
    print("a first break")
    if y.sum() > 0:
        y = y + 1
    return y

print(step(torch.arange(64.0)))
"""


def program(text):
    return parsed(textwrap.dedent(text), "script.py")


def test_a_break_chosen_by_its_text_ends_as_a_proven_file(tmp_path):
    module, _, call = BREAKING.rpartition("print")  # the compiled function in a module beside the script: the file must stand alone
    (tmp_path / "steps.py").write_text(module)
    (tmp_path / "script.py").write_text(f"import torch\nfrom steps import step\nprint{call}")
    verb = [sys.executable, "-c", "from dynadiag_cli.main import main; main()", "minify", "--out", "out"]
    command = [*verb, "--kind", "graph_break", "--match", "GB0170", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str((tmp_path / "out" / "repro_min.py").resolve())]
    result = json.loads((tmp_path / "out" / "minify.json").read_text())
    assert (result["kind"], result["level"], result["guilty"]["layer"]) == ("graph_break", "script", "dynamo")
    assert result["signature"]["message"].startswith("GB0170 ") and result["proven"] == {"runs": 3, "reproduced": 3}
    assert result["size_before"]["statements"] == 8 and result["size_after"]["statements"] <= 6
    source = (tmp_path / "out" / "repro_min.py").read_text()
    assert "dynadiag" not in source and "a first break" not in source and "assert not breaks" in source
    assert "Traceback" not in done.stderr and "proven: it showed the same in 3 of 3" in done.stderr
    assert (tmp_path / "out" / "report.md").stat().st_size > 0


def confirmed(text, kind):
    """What is found in a script, and whether its file shows it in a fresh process."""
    found = confirm(program(text), ScriptOptions(kind=kind, timeout_s=300))
    source = reproducer(found.program, found.failure, Header(versions="", story=""))
    return found, prove(source, found.failure, timeout_s=300, runs=1)


def test_a_recompile_is_told_by_the_kind_of_its_change():
    found, proof = confirmed(
        """
        import torch
        @torch.compile(backend="aot_eager", dynamic=False)
        def f(x, scale):
            return (x * scale).sum()
        for size in (4, 6):
            f(torch.ones(size, 3), 2)
        """,
        "recompile",
    )
    assert found.failure.message == "changed: size" and (found.failed, found.of) == (3, 3) and proof.holds, proof.output
    assert "backend='eager'" in found.program.text, "questions that Dynamo alone can answer are asked of Dynamo alone"


def test_a_frame_that_runs_eager_is_found():
    found, proof = confirmed(
        """
        import torch
        @torch.compile(backend="eager")
        def f(x):
            for i in range(2):
                torch._dynamo.graph_break()
                x = x + i
            return x
        f(torch.ones(3))
        """,
        "fallback",
    )
    assert found.failure.message == "skipped_frame" and proof.holds, proof.output


GOOD = "import torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(2)))\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD, "nothing to reduce: the script shows no graph_break"),
        ("open('data.txt')\n", "the script fails by itself in an empty directory (FileNotFoundError"),
        ("input()\n", "the script fails by itself in an empty directory (EOFError"),
    ],
)
def test_what_shows_nothing_is_said_in_one_line(text, said):
    with pytest.raises(NothingFoundError) as raised:
        confirm(program(text), ScriptOptions(kind="graph_break", timeout_s=300))
    assert said in raised.value.message and "\n" not in raised.value.message and raised.value.exit_code == 1


@pytest.mark.parametrize(
    "text",
    [
        "import shutil\nshutil.rmtree('{outside}')",
        "import os\nos.remove('{outside}/kept')",
        "import os\nos.rename('{outside}/kept', 'mine')",
        "open('{outside}/kept', 'w')",
        "from pathlib import Path\nPath('{outside}/kept').unlink()",
        "from pathlib import Path\nPath('{outside}/new').mkdir()",
        "import subprocess\nsubprocess.run(['true'])",
        "import os\nos.system('true')",
        "import os\nos.kill(os.getppid(), 0)",
        "import socket\nsocket.create_connection(('192.0.2.1', 9), timeout=1)",
        "import os\ntry:\n    os.remove('{outside}/kept')\nexcept OSError:\n    pass",
        "import torch\ntorch.save(1, '{outside}/kept')",
        "import os\nos.symlink('{outside}', 'link')\nopen('link/kept', 'w')",
    ],
)
def test_a_candidate_touches_nothing_outside_its_folder(text, tmp_path):
    (tmp_path / "kept").write_text("kept")
    seen = see(program(text.format(outside=tmp_path)), Conditions(recorded=False, timeout_s=300))
    assert seen.refused is not None and seen.refused_line is not None and (tmp_path / "kept").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


def test_a_candidate_may_write_in_its_own_folder():
    text = "import os, shutil, tempfile\nopen('a', 'w').write('b')\nshutil.rmtree(tempfile.mkdtemp())\nos.remove('a')\nos.makedirs('c/d')"
    seen = see(program(text), Conditions(recorded=False, timeout_s=300))
    assert seen.refused is None and seen.ended is None


def test_a_line_that_deletes_goes_first_and_is_named(tmp_path):
    (tmp_path / "kept").write_text("kept")
    deletes = f"os.remove({str(tmp_path / 'kept')!r})"
    text = f"import os\nimport torch\n{deletes}\n@torch.compile(backend='eager')\ndef f(x):\n    print(x)\nf(torch.ones(1))"
    found = confirm(program(text), ScriptOptions(kind="graph_break", timeout_s=300))
    assert found.dropped == (f"os.remove({str(tmp_path / 'kept')!r})",) and (tmp_path / "kept").exists()
