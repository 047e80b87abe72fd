"""State that Dynamo traces otherwise than Python has it, or does not guard, seen while a graph is made and when a hook is registered.

Two things are recorded as `dynadiag_unguarded` (torch 2.11 to 2.15):

* a `deque` of the program that has more elements in the trace than its `maxlen` allows: Dynamo forgets the `maxlen` of one that it finds;
* the first hook of a kind that a module gets after it was traced: there is no guard on hooks that are not there, as long as
  `torch._dynamo.config.skip_nnmodule_hook_guards` is on, which is the default.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_compat.trace.hooks import Hooks

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_MOST_TRACED = 100_000


class UnguardedState:
    """Remembers the empty dictionaries of hooks that were traced, and says when one of them is filled."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._empty: dict[int, tuple[weakref.ref[Any], str, str]] = {}

    def forget(self) -> None:
        """What was compiled is gone: `torch._dynamo.reset()` was called."""
        self._empty.clear()

    def look_at(self, output_graph: Any) -> None:
        """Look at the objects that Dynamo followed while it traced this graph."""
        effects = output_graph.side_effects
        module_class = sys.modules["torch"].nn.Module
        for value in list(effects.keepalive):
            if isinstance(value, module_class):
                self._note_empty_hooks(value)
            elif type(value) is deque and value.maxlen is not None:
                traced = effects.id_to_variable.get(id(value))
                if traced is not None and len(traced.items) > value.maxlen:
                    self._hooks.sink.artifact("dynadiag_unguarded", {"what": "full deque", "name": _source_name(traced)})

    def _note_empty_hooks(self, module: Any) -> None:
        for kind in _HOOKS:
            held = module.__dict__.get(kind)
            if held is not None and not held and len(self._empty) < _MOST_TRACED:
                self._empty[id(held)] = weakref.ref(held), type(module).__name__, kind

    def watch_hooks(self, module: ModuleType) -> None:
        """Watch `torch.utils.hooks`: each registration of a hook makes a handle for the dictionary that the hook then gets into."""

        def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            registered_in = args[1] if len(args) > 1 else kwargs.get("hooks_dict")
            known = self._empty.pop(id(registered_in), None)
            if known is None or known[0]() is not registered_in or registered_in or not _is_unguarded():
                return
            facts = {"what": "late hook", "name": known[1], "kind": known[2], "stack": stacks.calling_stack()}
            self._hooks.sink.artifact("dynadiag_unguarded", facts, context=False)

        owner = module.RemovableHandle

        def watch() -> None:
            original = owner.__init__
            self._hooks.watch(owner, "__init__", before=before, file=module.__file__)
            # What compiled code registers breaks as without us: Dynamo traces this one instead (`variables/functions.py`, 2.11 to 2.15).
            owner.__init__._torchdynamo_inline = original

        self._hooks.install("hooks of modules", watch)


def _is_unguarded() -> bool:
    return getattr(sys.modules["torch._dynamo.config"], "skip_nnmodule_hook_guards", False) is True


def _source_name(variable: Any) -> str:
    name = getattr(getattr(variable, "source", None), "name", "")
    return str(name() if callable(name) else name)
