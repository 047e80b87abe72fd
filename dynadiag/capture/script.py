"""Running a script as `__main__` of this process, and what its errors are called."""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynadiag.capture import overlay
from dynadiag.errors import DynadiagError
from dynadiag.import_watcher import ImportWatcher


class UserCodeError(DynadiagError):
    """The user's own code raised; the message is one line, the traceback goes to the log of its process."""

    slug = "user-code"


class ScriptEndedError(DynadiagError):
    """The script ended before what was waited for; `calls` says how many calls there were."""

    slug = "ended"

    def __init__(self, message: str, calls: int) -> None:
        super().__init__(message)
        self.calls = calls


def run_script(
    path: str,
    arguments: Sequence[str],
    *,
    watched: dict[str, Callable[[types.ModuleType], None]],
    change: Callable[[ast.Module], ast.Module] | None = None,
    names: Mapping[str, Any] | None = None,
    before: str = "",
    module: str | None = None,
) -> str:
    """How a script ended: "", or " with exit status 3". It runs as Python would run it, with its folder first on the path.

    With the name of a `module` as `python -m` would: the folder of now is first on the path, and its package is imported before it.
    `watched` are called with the modules of these names once they are imported. `change` may change the program, `names` are there for it.
    Raises UserCodeError when the script fails, which says `before` what that was; missing memory and our own errors are raised as they are.
    """
    main = types.ModuleType("__main__")
    vars(main).update({"__file__": path, "__cached__": None, **(names or {})})
    around = sys.modules["__main__"]
    sys.modules["__main__"] = main
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent) if module is None else str(Path.cwd()))
    ImportWatcher(watched).install()
    try:
        if module is not None:
            _be_module(main, module)
        text = overlay.text_of(path)
        source = Path(path).read_bytes() if text is None else text
        program = source if change is None else change(ast.parse(source, path))
        # Not our own `from __future__ import annotations`.
        exec(compile(program, path, "exec", dont_inherit=True), vars(main))
    except SystemExit as end:
        return f" with exit status {end.code}" if end.code not in (None, 0) else ""
    except DynadiagError:
        raise
    except Exception as error:  # the border around user code
        if "torch" in sys.modules and is_out_of_memory(error):
            raise
        missing = "environment variable" in str(error) and "expected, but not set" in str(error)
        hint = "; bench runs one process: run the script on its own, without torchrun" if missing else ""
        raise UserCodeError(f"{path} raised {one_line(error)}{before and f', before {before}'}{hint}") from error
    finally:
        sys.modules["__main__"] = around
    return ""


def _be_module(main: types.ModuleType, name: str) -> None:
    """The names that `python -m` gives `__main__` (`runpy._run_module_code`), its package imported."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None:
        raise ImportError(f"No module named {name}")
    vars(main).update({"__spec__": spec, "__package__": spec.parent, "__loader__": spec.loader, "__cached__": spec.cached})


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the machine had no memory left; a compiler's error holds the one that it met."""
    import torch

    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException) and inner is not error and is_out_of_memory(inner):
        return True
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator: can't allocate memory" in str(error)


def one_line(error: BaseException) -> str:
    """The class of an error and the first line of its text, with the next one where that is only its heading."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
