"""Whether a reproducer shows the failure: run in fresh processes, each in an empty directory, with a compile cache that holds no graph.

The first is an interpreter of its own; the further ones may be forked from a process that has imported torch and compiled nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.children.answer_cache import READ_BY_TORCH, digest, remembered
from dynadiag.children.forked import Tell, end_with_parent, run_forked
from dynadiag.children.template import Template, template_now
from dynadiag.masking import masked_setting
from dynadiag.reduce.core.failure import Failure, shows
from dynadiag.reduce.core.verdict import CONFIRMATIONS, is_proven, wants_proof
from dynadiag.render.document import Headline
from dynadiag.scratch import scratch

RUNS = CONFIRMATIONS
_KEPT_OUTPUT = 200_000
_OUTPUT_BYTES = 8 << 20  # a C++ compiler can say its one error before megabytes of warnings
DROPPED = ("DYNADIAG_RECORD", "DYNADIAG_CAPTURE", "TORCH_TRACE", "TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_REPRO_LEVEL")
"""Variables that no question inherits: with the last two torch's own minifier would begin at each failure, and tell of another one."""
DROPPED_IN_PROOFS = (*DROPPED, "PYTHONPATH", "TORCH_LOGS", "TORCHINDUCTOR_FORCE_DISABLE_CACHES")
"""Variables that no proof inherits."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """How many of `runs` fresh processes showed the failure; `output` is the end of what the last one printed."""

    runs: int
    reproduced: int
    output: str = ""

    @property
    def holds(self) -> bool:
        """Whether all did, or three at least where the failure does not always come."""
        return is_proven(self.reproduced, self.runs)


def headline(proof: Mapping[str, int]) -> Headline:
    """What the proof says; `proof` is `proven` of `minify.json`."""
    reproduced, runs = proof["reproduced"], proof["runs"]
    holds = is_proven(reproduced, runs)
    said = f"it failed in the same way in {reproduced} of {runs} fresh processes, each in an empty directory"
    if holds and reproduced < runs:
        said += "; it does not always come"
    return Headline(word="proven" if holds else "not proven", said=said, tone="good" if holds else "bad")


def prove(
    source: str,
    failure: Failure,
    *,
    timeout_s: float,
    runs: int = RUNS,
    python: str = sys.executable,
    warm: Path | None = None,
    sometimes: bool = False,
) -> Proof:
    """Run the source `runs` times, each in a fresh process without the variables of the user; `warm` as in `run_fresh`.

    What an interrupted reduction ran is known. `sometimes` as in `proof_by`.
    """
    further = template_for(source, failure)

    def run_number(number: int) -> tuple[int | None, str]:
        how = further if number else None
        return run_fresh(source, timeout_s=timeout_s, python=python, warm=warm, variables={}, template=how)

    return proof_by(source, failure, run_number, shows, runs=runs, sometimes=sometimes)


_ENDS_THE_PROCESS = ("crash", "hang", "oom")
_READ_ON_IMPORT = ("TORCH", "PYTORCH", "PYTHON", "CUDA", "OMP_", "MKL_", "TRITON", "INDUCTOR", "CXX", "CC", "CFLAGS", "LD_")
_NAMES_READ_ON_IMPORT = re.compile(rf"\b(?:{'|'.join(_READ_ON_IMPORT)})")
_NO_MATTER = (
    *("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS", "PYTORCH_NVML_BASED_CUDA_CHECK"),
    *("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONFAULTHANDLER"),
    *("PYTHON_VERSION", "PYTHON_SHA256", "PYTHON_PIP_VERSION", "PYTHON_SETUPTOOLS_VERSION", "PYTHON_GET_PIP_URL", "PYTHON_GET_PIP_SHA256"),
    *("PYTORCH_VERSION", "CUDA_VERSION", "PYTHONPATH"),
)
"""Variables that the reducer sets itself for every run, those that change no result, those that images of containers set to say what is in
them, and one that a template answers for itself."""


def template_for(source: str, failure: Failure, variables: Mapping[str, str] | None = None) -> Template | None:
    """The process that further runs of a proof, and runs with these variables of the user, are forked from; None where only an interpreter
    of its own says the same.

    That is: a failure that is no exception, a file that uses a GPU, and variables that torch or Python reads while it is imported, of the
    user, among those given, or named in a file that sets some.
    """
    if failure.kind in _ENDS_THE_PROCESS or "cuda" in source or (found := template_now()) is None or found.path is None:
        return None
    if re.search("environ|putenv", source) and _NAMES_READ_ON_IMPORT.search(without_header(source)):
        return None
    users = [name for name in os.environ if name not in _NO_MATTER and not is_everywhere(name)]
    return None if any(name.startswith(_READ_ON_IMPORT) for name in (*users, *(variables or ()))) else found


Shows = Callable[[Failure, "int | None", str], bool]
_EVERYWHERE = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "HOSTNAME", "TERM", "TZ", "TMPDIR", "TMP", "TEMP", "LANG", "LANGUAGE", "DISPLAY"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONHOME"),
)
_EVERYWHERE_BEGINS = ("LC_", "CONDA_", "XDG_", "SSL_CERT_", "NVIDIA_", "NIX_", "DYNADIAG_")


def is_everywhere(name: str) -> bool:
    """Whether a variable says what the machine has and where, as on any machine, or is ours: the others are the user's, and a failure may
    need them.
    """
    return name in _EVERYWHERE or name.startswith(_EVERYWHERE_BEGINS) or (name == _INSTRUCTIONS and os.environ.get(name) == "1")


_INSTRUCTIONS = "TORCHINDUCTOR_VEC_ISA_OK"
"""With "1" inductor does not try whether the C++ compiler knows the CPU's instructions (`torch/_inductor/cpu_vec_isa.py`, 2.11 to 2.15)."""


_shown: dict[str, list[list[Any]]] = {}
"""What the runs of this process gave, by what was run: a file that was proven once is not run again when its header changes."""


def proof_by(
    source: str, failure: Failure, run: Callable[[int], tuple[int | None, str]], shows: Shows, *, runs: int, sometimes: bool = False
) -> Proof:
    """The proof that `runs` runs give, each called with its number from 0 on; `shows` judges each.

    Of a failure that does not always come there are more, until it came three times: where some of these runs show it, and where that is
    known before (`sometimes`). Those that showed the failure are remembered by the text below its header.
    """

    def ask() -> list[Any]:
        status, output = run(len(results))
        return [shows(failure, status, output), output]

    key = f"proof {digest(without_header(source), failure.signature())}"
    results = _shown.setdefault(key, [])
    while len(results) < runs:
        results.append(remembered(key, ask, keep=lambda answer: answer[0] and len(answer[1]) <= _KEPT_OUTPUT))
    while runs >= RUNS and wants_proof(sum(shown for shown, _ in results), len(results), sometimes=sometimes):
        results.append(remembered(key, ask, keep=lambda answer: answer[0] and len(answer[1]) <= _KEPT_OUTPUT))
    results = results if runs >= RUNS else results[:runs]
    return Proof(runs=len(results), reproduced=sum(shown for shown, _ in results), output=results[-1][1] if results else "")


def without_header(source: str) -> str:
    """What is run: the header says how many questions it took, which differs after `--resume`."""
    return source.split('"""', 2)[-1] if source.startswith('"""') else source


def run_fresh(
    source: str,
    *,
    timeout_s: float,
    python: str = sys.executable,
    warm: Path | None = None,
    variables: Mapping[str, str] | None = None,
    template: Template | None = None,
) -> tuple[int | None, str]:
    """The exit status (negative for a signal, None when it did not finish in time) and the end of the output.

    `variables` are those of the user's environment that it gets besides those that every machine has; None: all. With a `template` it is
    forked from that, else it is an interpreter of its own.

    `warm` is a compile cache whose answers about the machine (which instructions the C++ compiler knows) are used again: half the CPU time
    of such a process. The graphs in it are not.
    """
    with scratch("proof") as folder:
        empty, elsewhere = Path(folder) / "empty", Path(folder) / "elsewhere"
        empty.mkdir()
        _copy_cache(warm, elsewhere)
        (empty / "repro_min.py").write_text(source, "utf-8")
        environment = {name: value for name, value in os.environ.items() if name not in DROPPED_IN_PROOFS}
        if variables is not None:
            environment = {name: value for name, value in environment.items() if is_everywhere(name)} | dict(variables)
        environment |= {"TORCHINDUCTOR_CACHE_DIR": str(elsewhere), "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        if template is not None:
            status, said = template.run_file(empty / "repro_min.py", environment=environment, timeout_s=timeout_s)
            return status, said[-_OUTPUT_BYTES:]
        status, output = _run_alone([python, "repro_min.py"], empty, environment, timeout_s)
        return status, output[-_OUTPUT_BYTES:].decode("utf-8", "replace")


def _run_alone(command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float) -> tuple[int | None, bytes]:
    """The exit status of a command in a session of its own, None when it did not end in time, and all its output."""
    parent = os.getpid()
    child = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: end_with_parent(parent),
    )
    try:
        output, _ = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        return None, output
    except BaseException:  # an interrupt: nothing stays behind
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise
    return child.returncode, output


def run_in_child(source: str, *, timeout_s: float) -> int | None:
    """The exit status of the file in a forked child with a directory of its own, told as by `run_fresh`; torch is there already."""

    def work(tell: Tell) -> None:
        Path("program.py").write_text(source, "utf-8")
        runpy.run_path("program.py", run_name="__main__")

    report = run_forked(work, timeout_s=timeout_s)
    if report.timed_out:
        return None
    return -int(signal.Signals[report.signal]) if report.signal is not None else report.exit_status


_GRAPHS = ("fxgraph", "aotautograd")
"""Folders of inductor's cache that hold compiled graphs (`torch/_inductor/codecache.py`, 2.11 to 2.15)."""


def _copy_cache(warm: Path | None, to: Path) -> None:
    to.mkdir()
    if warm is not None and warm.is_dir():
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(warm, to, ignore=shutil.ignore_patterns(*_GRAPHS), dirs_exist_ok=True)


MOST_RUNS = 24
_OURS = (
    *("DYNADIAG_", "OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "PYTORCH_NVML_BASED_CUDA_CHECK"),
    "THP_MEM_ALLOC_ENABLE",
)
_SECRET = re.compile(r"token|secret|passw|credential|api_?key|private|auth", re.IGNORECASE)

Fails = Callable[[Mapping[str, str]], bool]


def variables_of_the_user(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that a reproducer may have to set: none that says where programs are, none of ours, and no secret by name or by value."""
    found = os.environ if environment is None else environment
    return {
        name: value
        for name, value in found.items()
        if not is_everywhere(name) and not name.startswith(_OURS) and name not in DROPPED_IN_PROOFS
        if not _SECRET.search(name) and masked_setting(name, value) == value
    }


_found: dict[str, str] = {}
"""What the last file of this process needed: the next one needs it too, or nothing."""


def proven_with_variables(
    source: str, prove: Callable[[str], Proof], fails: Callable[[str, Mapping[str, str]], bool]
) -> tuple[str, Proof, dict[str, str]]:
    """The source, its proof without the variables of the user, and those that the source sets, because it shows nothing without them.

    `fails` runs a source with variables of the user.
    """
    if _found and not fails(source, {}):
        setting = with_variables(source, _found)
        if (proof := prove(setting)).reproduced:
            return setting, proof, dict(_found)
    proof = prove(source)
    if proof.reproduced:
        return source, proof, {}
    found = needed(variables_of_the_user(), source, lambda variables: fails(source, variables))
    if not found:
        return source, proof, {}
    _found.clear()
    _found.update(found)
    setting = with_variables(source, found)
    return setting, prove(setting), found


def needed(variables: Mapping[str, str], source: str, fails: Fails) -> dict[str, str] | None:
    """The variables without which the failure does not come; None where it does not come with all of them. At most 24 runs.

    Those that the source names are tried first, then those that torch reads. `fails` runs with these variables and no other of the user.
    """
    left = MOST_RUNS

    def ask(names: Sequence[str]) -> bool:
        nonlocal left
        left -= 1
        return fails({name: variables[name] for name in names})

    named = [name for name in variables if re.search(rf"\b{re.escape(name)}\b", source)]
    read = [name for name in variables if name.startswith(READ_BY_TORCH)]
    groups = [group for group in (named, read, list(variables)) if group]
    names = next((group for group in groups if ask(group)), None)
    if names is None:
        return None
    size = max(1, len(names) // 2)
    while names and left > 0:
        pieces = [names[start : start + size] for start in range(0, len(names), size)]
        for piece in pieces:
            rest = [name for name in names if name not in piece]
            if left > 0 and ask(rest):
                names = rest
        if size == 1:
            break
        size = max(1, size // 2)
    return {name: variables[name] for name in names}


def with_variables(source: str, variables: Mapping[str, str]) -> str:
    """The file with these variables set before anything is imported: torch reads them then."""
    if not variables:
        return source
    lines = source.splitlines(keepends=True)
    at = _behind_the_header(lines)
    setting = [f"os.environ[{name!r}] = {value!r}  # the failure needs it\n" for name, value in variables.items()]
    return "".join([*lines[:at], "\n", "import os\n", "\n", *setting, "\n", *lines[at:]])


def _behind_the_header(lines: Sequence[str]) -> int:
    """The line behind the docstring or the comments at the top, and behind `from __future__`."""
    at = 0
    if lines and lines[0].startswith('"""'):
        at = (
            next((number for number, line in enumerate(lines) if line.rstrip().endswith('"""') and (number or line.count('"""') > 1)), 0)
            + 1
        )
    while at < len(lines) and (lines[at].startswith(("#", "from __future__")) or not lines[at].strip()):
        at += 1
    return at
