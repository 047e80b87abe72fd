"""What Dynamo traces otherwise than Python does it, does not guard, or turns off, seen while a graph is made and where the program does it.

Four things are recorded as `dynadiag_unguarded` (torch 2.11 to 2.15):

* a `deque` of the program that has more elements in the trace than its `maxlen` allows: Dynamo forgets the `maxlen` of one that it finds;
* the first hook of a kind that a module gets after it was traced: there is no guard on hooks that are not there, as long as
  `torch._dynamo.config.skip_nnmodule_hook_guards` is on, which is the default;
* a generator that leaves compiled code: Dynamo runs it to its end, and hands out an iterator over what it gave;
* an argument of a distribution that breaks its constraint: the first call of `torch.compile` turns the checks of torch.distributions off
  for the whole process (`TorchPatcher.patch` in `torch/_dynamo/eval_frame.py`).
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from dynadiag.torch_compat.trace import stacks
from dynadiag.torch_compat.trace.hooks import Hooks

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_MOST_TRACED = 100_000
_MOST_CHECKED = 1000
_MOST_TOLD = 20
_LARGEST_CHECKED = 1_000_000
"""Distributions of a process whose arguments are looked at, those that are told, and the elements of an argument."""


class UnguardedState:
    """Remembers the empty dictionaries of hooks that were traced, and says when one of them is filled."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._empty: dict[int, tuple[weakref.ref[Any], str, str]] = {}
        self._checked, self._told = 0, 0
        self._program_chose = False

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

    def watch_generators(self, module: ModuleType) -> None:
        """Watch `torch._dynamo.symbolic_convert`: what a frame returns, and what it hands out inside of something else."""
        kind = getattr(module, "LocalGeneratorObjectVariable", None)
        returns = "replace_tos_if_return_is_generator"
        if kind is None or not hasattr(module.InstructionTranslator, returns):
            return  # a torch that breaks the graph at a generator (2.6)

        def tell(generator: Any, translator: Any) -> None:
            if not _has_ended(generator):
                line = translator.frame_summary()
                stack = [stacks.place(line.filename, line.lineno, line.name)]
                self._hooks.sink.artifact("dynadiag_unguarded", {"what": "generator", "name": generator.code.co_name, "stack": stack})

        def before_return(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if args[0].stack and isinstance(args[0].stack[-1], kind):
                tell(args[0].stack[-1], args[0])

        def put_in() -> None:
            self._hooks.watch(module.InstructionTranslator, returns, before=before_return)
            self._hooks.watch(kind, "reconstruct", before=lambda args, kwargs: tell(args[0], args[1].tx))

        self._hooks.install("generators", put_in)

    def watch_distributions(self, module: ModuleType) -> None:
        """Watch `torch.distributions.distribution`: the arguments of each distribution that eager code builds unchecked."""
        owner = module.Distribution

        def after(args: tuple[Any, ...], kwargs: dict[str, Any], result: None) -> None:
            chosen = kwargs.get("validate_args", args[3] if len(args) > 3 else None)
            if owner._validate_args or chosen is not None or self._program_chose or self._checked >= _MOST_CHECKED:
                return
            self._checked += 1
            broken = next(_broken_constraints(args[0]), None)
            if broken is not None and self._told < _MOST_TOLD:
                self._told += 1
                name, kind = f"{type(args[0]).__name__}.{broken[0]}", broken[1]
                facts = {"what": "unchecked argument", "name": name, "kind": kind, "stack": stacks.calling_stack()}
                self._hooks.sink.artifact("dynadiag_unguarded", facts, context=False)

        def put_in() -> None:
            original = owner.__init__
            self._hooks.watch(owner, "__init__", after=after, file=module.__file__)
            owner.__init__._torchdynamo_inline = original  # as for hooks
            self._watch_choice(owner)

        self._hooks.install("distributions", put_in)

    def check_distributions(self) -> None:
        """In a copy of the process: arguments are checked as where torch.compile was never called."""
        module = sys.modules.get("torch.distributions.distribution")
        if module is not None and not self._program_chose:
            module.Distribution._validate_args = __debug__

    def _watch_choice(self, owner: Any) -> None:
        """Whether the program itself says that arguments are checked or not."""
        original = owner.set_default_validate_args

        def note_caller(file: str) -> None:
            self._program_chose = not file.startswith(stacks.torch_folder())

        note = self._hooks.shielded("set_default_validate_args", note_caller)

        @functools.wraps(original)
        def set_default_validate_args(value: bool) -> None:
            note(sys._getframe(1).f_code.co_filename)
            original(value)

        self._hooks.replace(owner, "set_default_validate_args", staticmethod(set_default_validate_args))


def _has_ended(generator: Any) -> bool:
    """Whether the generator was used up while it was traced (another name in 2.11 than in 2.15)."""
    ended = getattr(generator, "_frame_state_finished", None)
    return bool(ended() if ended is not None else generator._is_generator_exhausted())


def _broken_constraints(distribution: Any) -> Iterator[tuple[str, str]]:
    """The arguments of a distribution that are not as torch demands, as `Distribution.__init__` checks them; those on a CPU alone, since
    to look at others would wait for the device.
    """
    torch = sys.modules["torch"]
    from dynadiag.torch_compat.dispatch.live_call import aside, why_not_now

    constraints = torch.distributions.constraints
    for name, constraint in distribution.arg_constraints.items():
        value = vars(distribution).get(name)
        if type(constraint).__module__ != constraints.__name__ or constraints.is_dependent(constraint):
            continue
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type != "cpu" or value.numel() > _LARGEST_CHECKED:
            continue
        with aside():
            if why_not_now([value]) is None and not bool(constraint.check(value.detach()).all()):
                yield name, repr(constraint)


def _is_unguarded() -> bool:
    return getattr(sys.modules["torch._dynamo.config"], "skip_nnmodule_hook_guards", False) is True


def _source_name(variable: Any) -> str:
    name = getattr(getattr(variable, "source", None), "name", "")
    return str(name() if callable(name) else name)
