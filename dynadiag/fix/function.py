"""`dynadiag.fix(fn, *args)`: the changes that are proven for one function, called from a script of our own in processes of their own."""

from __future__ import annotations

import inspect
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from dynadiag.errors import NothingFoundError, NoViewError, UnreadableInputError, UsageError
from dynadiag.files import write_inside
from dynadiag.fix.baseline import Baseline, check_script
from dynadiag.fix.result import FixResult
from dynadiag.fix.session import FixOptions, fix
from dynadiag.private_view.choosing import private_view, roots_of
from dynadiag.private_view.consent import Apart
from dynadiag.record.project_root import project_root

_SCRIPT = """import sys

sys.path[:0] = {paths!r}
import torch

call = torch.load({call!r}, weights_only=False)
compiled = torch.compile(call["fn"])
for _ in range(3):
    compiled(*call["args"], **call["kwargs"])
"""


def fix_function(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> FixResult:
    """The proven changes of the module that `fn` is defined in, for three calls of `fn(*args, **kwargs)` with `torch.compile`'s defaults.

    `result.patch` is for `git apply`, `result.new_texts` are the changed files by path; nothing is written. The calls are made in other
    processes, on copies: `fn` is not called here. Raises UsageError for a function that no other process finds (one of a script or
    notebook, a lambda, a nested one) or arguments that cannot be pickled, and NothingFoundError where nothing was compiled.
    """
    import torch

    from dynadiag import record
    from dynadiag.torch_compat.dynamo.compiled_calls import uncompiled

    plain = uncompiled(fn)
    home = _home(plain)
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as directory, ExitStack() as stack:
        folder = Path(directory)
        call = folder / "call.pt"
        try:
            torch.save({"fn": plain, "args": args, "kwargs": kwargs}, call)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(f"the call cannot be made in another process: {error}") from error
        paths = [name for name in sys.path if name] or [str(Path.cwd())]
        script = write_inside(folder, "call.py", _SCRIPT.format(paths=paths, call=str(call)))
        begun, before = time.monotonic(), os.times()
        target = record.Target("script", (str(script),))
        apart = stack.enter_context(_apart(home, folder))
        view = None if apart is None else apart.view
        done = record.record(target, record.RecordOptions(out=folder / "run", output=folder / "output", view=view))
        if done.directory is None:
            raise NothingFoundError("nothing was recorded", exit_code=2)
        after = os.times()
        baseline = Baseline(
            directory=done.directory,
            script=script,
            arguments=(),
            folder=Path.cwd(),
            home=home,
            cpu_s=after.children_user + after.children_system - before.children_user - before.children_system,
            wall_s=time.monotonic() - begun,
        )
        return fix(baseline, FixOptions(), lambda text: None, lambda text: None, apart)


@contextmanager
def _apart(home: Path, folder: Path) -> Iterator[Apart | None]:
    """The calls leave no file behind either; where the machine does not allow that, they are made as the function is."""
    with ExitStack() as stack:
        view = None
        with suppress(NoViewError):
            view = stack.enter_context(private_view(roots_of(project_root(home), Path.cwd()), passed=[folder]))
        yield None if view is None else Apart(view=view, agreed=True)


def _home(plain: Any) -> Path:
    """The file that the function, or the class of the module, is defined in."""
    found = inspect.unwrap(plain) if inspect.isroutine(plain) else type(plain)
    if found.__module__ == "__main__":
        raise UsageError(f"{found.__qualname__} is defined in the script itself: use `dynadiag fix SCRIPT`, or move it into a module")
    try:
        file = Path(inspect.getfile(found))
    except (OSError, TypeError) as error:
        raise UnreadableInputError(f"{found.__qualname__} has no source file: {error}") from error
    check_script(file)
    return file.resolve()
