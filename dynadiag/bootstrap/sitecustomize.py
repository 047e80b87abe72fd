"""Python runs this at start-up because `dynadiag` put its folder first on PYTHONPATH; the user's own sitecustomize runs afterwards.

Standard library only, and no dynadiag on the path: this interpreter may have never heard of it.
Until torch is imported recording costs one finder; `minify` and `numerics` also capture graphs and losses.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up time in every child


def _load_dynadiag() -> None:
    """Make the package importable by file location, without its site-packages on the path."""
    if "dynadiag" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    package = os.path.dirname(_HERE)  # noqa: PTH120
    spec = spec_from_file_location("dynadiag", os.path.join(package, "__init__.py"), submodule_search_locations=[package])  # noqa: PTH118
    if spec is None or spec.loader is None:
        raise ImportError(f"no dynadiag in {package}")
    module = module_from_spec(spec)
    sys.modules["dynadiag"] = module
    spec.loader.exec_module(module)


class _FirstTorchImport:
    """Wakes the recorder when torch is first looked for, then leaves the import system to it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of torch as the recorder's own finder gives it; None for everything else."""
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            _load_dynadiag()
            from dynadiag.record.inside import start_from_environment

            watcher = start_from_environment()
        except Exception as error:  # noqa: BLE001 - border: a recorder that cannot start must not stop the program
            print(f"dynadiag: not recording this process: {error!r}", file=sys.stderr)
            return None
        return watcher and watcher.find_spec(name, path, target)


def _tell_of_early_end() -> None:
    """At exit: an exception that ended the program before torch was looked for; the recorder is loaded for it alone."""
    raised = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(raised, Exception) or not any(isinstance(finder, _FirstTorchImport) for finder in sys.meta_path):
        return
    try:
        _load_dynadiag()
        from dynadiag.record.inside import tell_of_early_end

        tell_of_early_end()
    except Exception as error:  # noqa: BLE001 - border: the program has its own exception to show
        print(f"dynadiag: not recording this process: {error!r}", file=sys.stderr)


def _start_capture(module: str) -> None:
    try:
        _load_dynadiag()
        from importlib import import_module

        import_module(f"dynadiag.capture.{module}").start()
    except Exception as error:  # noqa: BLE001 - border: a capture that cannot start must not stop the program
        print(f"dynadiag: not capturing in this process: {error!r}", file=sys.stderr)


def _run_users_own() -> None:
    """The user's sitecustomize, which ours shadows; what it raises is reported by Python as always."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None or spec.origin == __file__:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if os.path.normpath(entry) != _HERE]  # no `abspath`: the current folder may be gone
if "DYNADIAG_RECORD" in os.environ:
    sys.meta_path.insert(0, _FirstTorchImport())
    atexit.register(_tell_of_early_end)
if "DYNADIAG_CAPTURE" in os.environ:
    _start_capture("graph_capture")
if "DYNADIAG_LOSSES" in os.environ:
    _start_capture("losses")
if "DYNADIAG_HASHES" in os.environ:
    _start_capture("output_hashes")
_run_users_own()
