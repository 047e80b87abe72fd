"""Variables of the user's environment that a failure needs: found by leaving them out, and written into the reproducer."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from dynadiag.children.answer_cache import READ_BY_TORCH
from dynadiag.masking import masked_setting
from dynadiag.reduce.reproducer.proving import DROPPED_IN_PROOFS, Proof, is_everywhere

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
