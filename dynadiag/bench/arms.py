"""The arms of a comparison, from what the command line names."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.errors import UsageError

EAGER = "eager"
COMPILED = "compiled"
LOOP = "loop"
DEFAULT = "default"
# The values of `mode` in torch.compile (torch/__init__.py, 2.11 to 2.15); "default" also means "as the program compiles itself".
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")
AGAIN = "A/A"
AFTER = "after:"
_NAME = re.compile(r"[A-Za-z0-9_.+:-]{1,60}")


@dataclass(frozen=True, kw_only=True)
class ScriptCall:
    """Where to take a script over: at the `call`-th of the compiled callable `chosen` (its name or number; None where there is one).

    With `shapes` the arguments of each shape until then are kept, and the step is the call with the shapes that most calls had.
    `module` is the script's name where it runs as `python -m`.
    """

    arguments: tuple[str, ...] = ()
    call: int = 3
    chosen: str | None = None
    shapes: bool = False
    module: str | None = None


@dataclass(frozen=True, kw_only=True)
class ArmSpec:
    """An arm before it runs: its unique name, "eager", "compiled" or "loop", and what it puts over the program's torch.compile options.

    `folder` is where its process runs, and `instead_of` the working tree and the copy of a revision that its modules come from;
    `environment` are variables that only its process gets. `after` marks another version of the
    program: it starts from the baseline's state and has to agree with the baseline's eager results. With `script` the target is a script
    that is run up to a call of something that it compiles; `arguments` are what a program finds in `sys.argv`. An arm of the kind "loop" is
    a script as it is, of which the iterations of the loop at line `loop` are timed. `texts` are new texts of files (by real path).
    """

    name: str
    kind: str
    target: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    folder: str | None = None
    instead_of: tuple[str, str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    after: bool = False
    arguments: tuple[str, ...] = ()
    script: ScriptCall | None = None
    loop: int | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


def parse_arms(
    text: str, target: str, *, arguments: tuple[str, ...] = (), script: ScriptCall | None = None, least: int = 2
) -> tuple[ArmSpec, ...]:
    """The arms in "eager,default,reduce-overhead,aot_eager": a mode of torch.compile or the name of a backend; the first is the baseline.

    An arm may be named twice; the second is then called "default#2". Raises UsageError for fewer than `least` or a name that cannot be one.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) < least:
        raise UsageError("--arms needs a baseline and at least one arm to compare with it, such as eager,default")
    wrong = next((word for word in words if not _NAME.fullmatch(word)), None)
    if wrong is not None:
        raise UsageError(f"--arms: {wrong!r} is neither a mode nor the name of a backend")
    arms = (_spec(name, word, target) for name, word in zip(_unique(words), words, strict=True))
    return tuple(replace(arm, arguments=arguments, script=script) for arm in arms)


def parse_variants(texts: Sequence[str], target: str, *, loop: int | None = None) -> tuple[ArmSpec, ...]:
    """The arms in "base: --variant base": a name and the arguments of the script `target`, the first being the baseline.

    Raises UsageError for fewer than two, for one that has no name, and for a name that comes twice.
    """
    arms = []
    for text in texts:
        name, colon, words = text.partition(":")
        if not colon or not _NAME.fullmatch(name.strip()):
            raise UsageError(f'--variants: {text!r} is not "NAME: ARGUMENTS"')
        try:
            arguments = tuple(shlex.split(words))
        except ValueError as error:
            raise UsageError(f"--variants {name}: {error}") from None
        arms.append(ArmSpec(name=name.strip(), kind=LOOP, target=target, arguments=arguments, loop=loop))
    if len(arms) < 2:
        raise UsageError('--variants needs a baseline and at least one to compare with it: --variants "a: ARGS" "b: ARGS"')
    if len({arm.name for arm in arms}) < len(arms) or AGAIN in {arm.name for arm in arms}:
        raise UsageError(f"--variants: each needs its own name, and none may be called {AGAIN}")
    return tuple(arms)


def with_after(
    arms: Sequence[ArmSpec], target: str, *, before_folder: str | None = None, instead_of: tuple[str, str] | None = None
) -> tuple[ArmSpec, ...]:
    """The arms, and each once more on `target`, the changed program, called "after:NAME"; those before run in `before_folder`."""
    changed = (replace(arm, name=f"{AFTER}{arm.name}", target=target, after=True) for arm in arms)
    return (*(replace(arm, folder=before_folder, instead_of=instead_of) for arm in arms), *changed)


def pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """What is compared: every arm with the first, and each after a change with the same before it."""
    baseline, *others = names
    changed = [(name.removeprefix(AFTER), name) for name in others if name.startswith(AFTER)]
    return [(baseline, name) for name in others] + [(before, name) for before, name in changed if before in others]


def _unique(words: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    names = []
    for word in words:
        seen[word] += 1
        names.append(word if seen[word] == 1 else f"{word}#{seen[word]}")
    return names


def _spec(name: str, word: str, target: str) -> ArmSpec:
    if word == EAGER:
        return ArmSpec(name=name, kind=EAGER, target=target)
    # The backends called "eager" and "inductor" are meant by "backend:eager" and "backend:inductor".
    backend = word.removeprefix("backend:")
    overrides = {} if word == DEFAULT else {"mode": word} if word in MODES else {"backend": backend}
    return ArmSpec(name=name, kind=COMPILED, target=target, overrides=overrides)


def early_imports(spec: ArmSpec) -> tuple[str, ...]:
    """What the process of an arm can import while others do so too: torch and Dynamo. Inductor's import is part of a cold compilation.

    Torch only for a program that imports nothing but the standard library before it and says nothing of the environment, since another
    may say there how torch is to be imported; Dynamo only for one that imports nothing else at all.
    """
    if os.cpu_count() == 1:
        return ()  # nothing is gained, and lost where the first arm fails
    file = spec.target if spec.script is not None or spec.loop is not None else spec.target.rpartition(":")[0] or spec.target
    path = Path(spec.folder or os.curdir, file)
    try:
        text = spec.texts.get(os.path.realpath(path)) or path.read_text("utf-8")
        body = ast.parse(text).body
    except (OSError, ValueError, SyntaxError, RecursionError):
        return ()
    if "environ" in text or "putenv" in text:
        return ()
    for statement in body:
        names = _imported(statement)
        if "torch" in names:
            only_torch = all(_imported(child) <= sys.stdlib_module_names | {"torch"} for child in body)
            return ("torch", "torch._dynamo") if only_torch else ("torch",)
        if not names <= sys.stdlib_module_names or not (names or _is_text(statement)):
            break
    return ()


def _imported(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import):
        return {name.name.partition(".")[0] for name in statement.names}
    return {(statement.module or ".").partition(".")[0] if not statement.level else "."} if isinstance(statement, ast.ImportFrom) else set()


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
