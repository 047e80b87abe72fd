"""The state of a call: what it runs under, the random numbers that it would draw, what it can read and change, and copies of all that."""

from __future__ import annotations

import functools
import hashlib
import logging
import random
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dynadiag.capture.compiled_calls import APART
from dynadiag.torch_compat.dynamo.compiled_calls import uncompiled

_DEEPEST = 6
_LONGEST = 2000
_SCRATCH = ("al",)
"""Lists of an optimizer that are written before they are read: what is left there is no result (`torch/optim/lbfgs.py`, 2.11 to 2.15)."""
_PLAIN = (bool, int, float, types.NoneType)
_LOGS = (logging.Filterer, logging.Manager)
"""A logger leads to all others of the process by its manager, torch's and the recorder's too: that is no state of the program's results."""
_ATOMS = (str, bytes, complex, types.ModuleType, type, types.BuiltinFunctionType, *_LOGS)


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor and what it is: "parameter", "buffer", "optimizer", "scaler", "setting" or "input" (anything else that the step can reach).

    A "setting" is a number that an optimizer keeps as a tensor: the count of its steps, a learning rate. Fused kernels on CUDA read the
    memory of `step` as float32 without asking for its dtype (`aten/src/ATen/native/cuda/fused_adam_utils.cuh`, 2.11 to 2.15), and
    `torch.optim.Optimizer.load_state_dict` leaves its dtype alone as well: it is compared, but never converted or changed.
    """

    tensor: Any
    kind: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in which a step may put something else: a closure cell, or an entry of a dict, a list or an object's attributes.

    An entry may have the key None.
    """

    owner: Any
    key: Any

    def get(self) -> Any:
        """What is there now; None where the place is gone."""
        try:
            return self.owner.cell_contents if isinstance(self.owner, types.CellType) else self.owner[self.key]
        except (ValueError, KeyError, IndexError):
            return None

    def put(self, value: Any) -> None:
        """Put `value` there; a place that is gone stays so."""
        if isinstance(self.owner, types.CellType):
            self.owner.cell_contents = value
        elif isinstance(self.owner, dict) or self.key < len(self.owner):
            self.owner[self.key] = value


@dataclass(kw_only=True)
class State:
    """What was reached, by name; `compiled` says whether something on the way is compiled, which changes no name.

    `containers` are the lists and dicts on the way, which a step may let grow.
    """

    modules: dict[str, Any] = field(default_factory=dict)
    optimizers: dict[str, Any] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    slots: dict[str, Slot] = field(default_factory=dict)
    containers: list[Any] = field(default_factory=list)
    compiled: bool = False

    def optimizer_tensors(self) -> dict[str, Any]:
        """What optimizers keep for each parameter, as it is now; they make it when they first step."""
        import torch

        found: dict[str, Any] = {}
        for name, optimizer in self.optimizers.items():
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for at, parameter in enumerate(parameters):
                for key, value in dict(optimizer.state.get(parameter, {})).items():
                    if isinstance(value, list) and key in _SCRATCH:
                        continue
                    parts = enumerate(value) if isinstance(value, list) else [(None, value)]
                    for number, part in parts:
                        if isinstance(part, torch.Tensor):
                            found[f"{name}.state[{at}][{key!r}]{'' if number is None else f'[{number}]'}"] = part
        return found

    def optimizer_histories(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """What optimizers keep that puts other tensors in the place of old ones (`torch.optim.LBFGS`): the dict, and what it holds now."""
        kept = (item for optimizer in self.optimizers.values() for item in optimizer.state.values() if isinstance(item, dict))
        with_lists = (record for record in kept if any(isinstance(value, list) for value in record.values()))
        return [
            (mapping, {key: value.copy() if isinstance(value, list) else value for key, value in mapping.items()}) for mapping in with_lists
        ]

    def optimizer_settings(self) -> set[int]:
        """The `id`s of numbers that an optimizer goes by: counts of steps, and whatever its groups hold beside parameters."""
        import torch

        found: set[int] = set()
        for optimizer in self.optimizers.values():
            found.update(id(kept["step"]) for kept in optimizer.state.values() if isinstance(kept, dict) and "step" in kept)
            for group in optimizer.param_groups:
                values = [value for key, value in group.items() if key != "params"]
                parts = [part for value in values for part in (value if isinstance(value, list | tuple) else (value,))]
                found.update(id(part) for part in parts if isinstance(part, torch.Tensor))
        return found

    def numbers(self) -> dict[str, float]:
        """Plain numbers that the step can change."""
        values = {name: slot.get() for name, slot in self.slots.items()}
        return {name: float(value) for name, value in values.items() if isinstance(value, bool | int | float)}

    def gradients(self) -> dict[str, Any]:
        """The gradient of each leaf that has one, under the leaf's name."""
        return {name: held.tensor.grad for name, held in self.held.items() if held.tensor.is_leaf and held.tensor.grad is not None}


def find_state(function: Any, arguments: tuple[Any, ...] = (), keywords: Mapping[str, Any] | None = None) -> State:
    """What can be reached from a function (closure, the globals that it names, what it is bound to) and its arguments."""
    finder = _Finder()
    finder.visit(function, "step", 0)
    for number, argument in enumerate(arguments):
        finder.visit(argument, f"arguments[{number}]", 0)
    for name, argument in (keywords or {}).items():
        finder.visit(argument, name, 0)
    finder.add_optimizer_states()
    return finder.state


class _Finder:
    """Walks objects once each, in a fixed order."""

    def __init__(self) -> None:
        self.state = State()
        self._seen: dict[int, Any] = {}

    def visit(self, value: Any, name: str, depth: int) -> None:
        """Note what `value` is or holds."""
        import torch

        if isinstance(value, types.FunctionType) and APART in value.__dict__:
            return
        inner = uncompiled(value)
        self.state.compiled |= inner is not value
        value = inner
        if depth > _DEEPEST or isinstance(value, (*_PLAIN, *_ATOMS, getattr(torch.library, "CustomOpDef", ()))) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self.state.held[name] = Held(value, "input")
        elif isinstance(value, torch.nn.Module):
            self._module(value, name)
        elif isinstance(value, torch.optim.Optimizer):
            self._optimizer(value, name)
        elif isinstance(value, torch.amp.GradScaler):
            self._scaler(value, name)
        else:
            self._inside(value, name, depth)

    def _hold(self, name: str, tensor: Any, kind: str) -> None:
        if id(tensor) not in self._seen:
            self._seen[id(tensor)] = tensor
            self.state.held[name] = Held(tensor, kind)

    def _module(self, module: Any, name: str) -> None:
        self.state.modules[name] = module
        for kind, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
            for inner, tensor in named:
                self._hold(f"{name}.{inner}".replace("._orig_mod", ""), tensor, kind)
        for inner, part in module.named_modules():
            self._seen[id(part)] = part
            self.state.compiled |= part.__dict__.get("_compiled_call_impl") is not None
            way = f"{name}.{inner}".replace("._orig_mod", "") if inner else name
            self._entries(part.__dict__, [key for key in part.__dict__ if not key.startswith("_")], way, ".{}", 1)

    def _optimizer(self, optimizer: Any, name: str) -> None:
        self.state.optimizers[name] = optimizer
        for number, group in enumerate(optimizer.param_groups):
            for at, parameter in enumerate(group["params"]):
                self._hold(f"{name}.params[{number}][{at}]", parameter, "parameter")
            self._entries(group, [key for key in group if key != "params"], f"{name}.param_groups[{number}]", "[{!r}]", 1)

    def _scaler(self, scaler: Any, name: str) -> None:
        for key in ("_scale", "_growth_tracker"):
            tensor = getattr(scaler, key, None)
            if tensor is not None:
                self._hold(f"{name}.{key}", tensor, "scaler")

    def add_optimizer_states(self) -> None:
        """Hold what the optimizers keep, and tell their settings from it."""
        for name, tensor in self.state.optimizer_tensors().items():
            self._hold(name, tensor, "optimizer")
        settings = self.state.optimizer_settings()
        for name, held in self.state.held.items():
            if id(held.tensor) in settings:
                self.state.held[name] = Held(held.tensor, "setting")

    def _inside(self, value: Any, name: str, depth: int) -> None:
        if isinstance(value, types.MethodType):
            self.visit(value.__self__, f"{name}.self", depth + 1)
            self.visit(value.__func__, name, depth + 1)
        elif isinstance(value, types.FunctionType):
            self._function(value, depth)
        elif isinstance(value, functools.partial):
            for at, item in enumerate((value.func, value.args, value.keywords)):
                self.visit(item, f"{name}.partial[{at}]", depth + 1)
        elif isinstance(value, dict):
            self._contain(value)
            self._entries(value, list(islice(value, _LONGEST)), name, "[{!r}]", depth)
        elif isinstance(value, list | deque):
            self._contain(value)
            self._entries(value, list(range(min(len(value), _LONGEST))), name, "[{}]", depth)
        elif isinstance(value, tuple):
            for at, item in enumerate(value[:_LONGEST]):
                self.visit(item, f"{name}[{at}]", depth + 1)
        else:
            attributes = getattr(value, "__dict__", None)
            if isinstance(attributes, dict):
                self._entries(attributes, list(islice(attributes, _LONGEST)), name, ".{}", depth)

    def _contain(self, value: Any) -> None:
        if type(value) in (list, dict, OrderedDict, defaultdict, deque):
            self.state.containers.append(value)

    def _function(self, function: types.FunctionType, depth: int) -> None:
        """Free variables, then the globals that the code names, unless they are functions of another module."""
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._slot(Slot(cell, None), variable, depth)
        for variable in _global_names(function.__code__):
            item = function.__globals__.get(variable)
            if not isinstance(item, types.FunctionType) or item.__module__ == function.__module__:
                self._slot(Slot(function.__globals__, variable), variable, depth)
        for at, item in enumerate(function.__defaults__ or ()):
            self.visit(item, f"default[{at}]", depth + 1)

    def _entries(self, owner: Any, keys: list[Any], name: str, form: str, depth: int) -> None:
        for key in keys:
            self._slot(Slot(owner, key), name + form.format(key), depth)

    def _slot(self, slot: Slot, name: str, depth: int) -> None:
        # Whatever is there: a step may put another tuple of hidden states, or another cache, in its place.
        self.state.slots.setdefault(name, slot)
        self.visit(slot.get(), name, depth + 1)


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Copies of a state's tensors and gradients, and what its slots held."""

    state: State
    copies: dict[str, Any]
    gradients: dict[str, Any]
    slots: tuple[tuple[Slot, Any], ...]
    containers: tuple[tuple[Any, Any], ...]
    histories: tuple[tuple[dict[str, Any], dict[str, Any]], ...]
    generators: RandomStates

    def restore(self) -> None:
        """Put all back: the same objects in their places, the old values in the same tensors (their addresses stay), and random numbers.

        A tensor that has another shape or dtype by now gets fresh storage.
        """
        import torch

        for container, held in self.containers:
            _put_back(container, held)
        for slot, value in self.slots:
            if slot.get() is not value:
                slot.put(value)
        for kept, held in self.histories:
            kept.update({key: value.copy() if isinstance(value, list) else value for key, value in held.items()})
        with torch.no_grad():
            now = self.state.optimizer_tensors()
            for name, copy in self.copies.items():
                # A compiled optimizer may have put a tensor of its own in the place of `step`: its value is what counts.
                tensor = now.get(name, self.state.held[name].tensor)
                if tensor.shape == copy.shape and tensor.dtype == copy.dtype:
                    tensor.copy_(copy)
                else:
                    tensor.data = copy.clone()
        for name, held in self.state.held.items():
            if held.tensor.is_leaf:
                old = self.gradients.get(name)
                held.tensor.grad = None if old is None else old.clone()
        # Autocast keeps the casts of weights, and would go on with those of the values that were just overwritten.
        torch.clear_autocast_cache()
        self.generators.put_back()


def take_snapshot(state: State) -> Snapshot:
    """Copies of everything as it is now, on the same devices."""
    return Snapshot(
        state=state,
        copies={name: held.tensor.detach().clone() for name, held in state.held.items()},
        gradients={name: gradient.detach().clone() for name, gradient in state.gradients().items()},
        slots=tuple((slot, slot.get()) for slot in state.slots.values()),
        containers=tuple((container, container.copy()) for container in state.containers),
        histories=tuple(state.optimizer_histories()),
        generators=RandomStates.now(),
    )


def _put_back(container: Any, held: Any) -> None:
    """Let a list or a dict hold what it held: a loss that each step appends would else be a new result each time."""
    if isinstance(container, list):
        if len(container) != len(held):
            container[:] = held
    elif isinstance(container, deque):
        container.clear()
        container.extend(held)
    elif container.keys() != held.keys():
        for key in [key for key in container if key not in held]:
            del container[key]
        container.update({key: value for key, value in held.items() if key not in container})


@dataclass(frozen=True, kw_only=True)
class Mode:
    """What a call runs under: grad mode, inference mode, devices with autocast, and whether the module is in training mode."""

    grad: bool
    inference: bool
    autocast: tuple[str, ...]
    training: bool | None

    @classmethod
    def of(cls, owner: Any) -> Mode:
        """As it is now, for a call of `owner`."""
        import torch

        training = getattr(getattr(owner, "__self__", owner), "training", None)
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=tuple(device for device in ("cuda", "cpu") if torch.is_autocast_enabled(device)),
            training=training if isinstance(training, bool) else None,
        )


@dataclass(frozen=True, kw_only=True)
class RandomStates:
    """The states of the generators that a call may draw from; None for numpy where it is not loaded."""

    python: Any
    numpy: Any
    torch: Any

    @classmethod
    def now(cls, *, wake_numpy: bool = True) -> RandomStates:
        """As they are. NumPy makes its generator when it is first used (2.4): with `wake_numpy` here, else nobody knows how it begins."""
        from dynadiag.torch_compat.dispatch.live_call import RandomState

        numpy = sys.modules.get("numpy") if wake_numpy or "numpy.random" in sys.modules else None
        return cls(python=random.getstate(), numpy=None if numpy is None else numpy.random.get_state(), torch=RandomState())

    def put_back(self) -> None:
        """Let them go on from here."""
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)
        self.torch.set_back()

    def digests(self) -> dict[str, str | None]:
        """A short name for the state of each; None for that of NumPy where it is as it was seeded, or not there.

        None too for CUDA where nobody has drawn from it: Dynamo wakes it where it compiles, also on the CPU (`preserve_rng_state`, torch
        2.11 and 2.15), and eager does not. A state is the seed and how much was drawn, 8 bytes each.
        """
        torchs, *cuda = self.torch.as_bytes()
        found: dict[str, str | None] = {"python": _digest(repr(self.python).encode()), "torch": _digest(torchs)}
        found["cuda"] = _digest(b"".join(cuda)) if any(any(state[8:]) for state in cuda) else None
        seeded = None if self.numpy is None else sys.modules["numpy.random"].RandomState(0).get_state()
        moved = self.numpy is not None and _bytes_of(self.numpy) != _bytes_of(seeded)
        return {**found, "numpy": _digest(_bytes_of(self.numpy)) if moved else None}


def _digest(state: bytes) -> str:
    return hashlib.sha256(state).hexdigest()[:12]


def _bytes_of(numpys: Any) -> bytes:
    name, keys, *rest = numpys
    return repr((name, rest)).encode() + bytes(keys.tobytes())


def seed_generators(seed: int = 0) -> None:
    """Seed the generators of Python, torch (of every device) and NumPy where it is loaded."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(seed)


def cuda_in_use() -> bool:
    """Whether this process has a CUDA device and has used it."""
    import torch

    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def strided_copy(value: Any, device: Any = None) -> Any:
    """A copy of a strided tensor, without a history, that keeps sizes and strides (one that is expanded gets memory for each element)."""
    import torch

    there = value.device if device is None else device
    with torch.no_grad():
        if any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True)):
            return value.detach().to(there, copy=True)
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=there).copy_(value.detach())
