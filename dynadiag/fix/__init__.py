"""`dynadiag fix`: what advice says is tried in a copy, proven against the original program in eager, and handed over as one patch.

The package can be called: `dynadiag.fix(fn, *args, **kwargs)` is `fix_function` (a module and a function of the package share the name).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.fix.result import FixResult


class _Callable(types.ModuleType):
    def __call__(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> FixResult:
        from dynadiag.fix.function import fix_function

        return fix_function(fn, *args, **kwargs)


sys.modules[__name__].__class__ = _Callable
