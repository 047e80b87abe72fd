"""What each of the first calls of compiled callables was given, what it gave and changed: plain data and copies of tensors in one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from dynadiag.capture.compiled_calls import After, CompiledCallable
from dynadiag.capture.reach import Mode, RandomStates, State, find_state, strided_copy
from dynadiag.compare.aliasing import is_plain, overlaps_itself, sharing
from dynadiag.fix.inside.judging import PROGRAM
from dynadiag.fix.inside.program_state import ProgramState
from dynadiag.torch_compat.aot.autograd_engine import compiled_autograd_is_on
from dynadiag.torch_compat.dispatch.distributed import own_part
from dynadiag.torch_compat.dispatch.live_call import aside
from dynadiag.torch_compat.pytree import tree_leaves

_PLAIN = (bool, int, float, str, type(None))
_LONGEST = 200


class CallLog:
    """The first `most` calls of each compiled callable, and the state that they can reach after the last one.

    An entry is (where, name, value): a value is a copy of a tensor, or plain data that has to be the same. `vary` changes the floating
    tensors among the arguments of each call, by a rule, so that a program that is run again sees other data: 0 leaves them as they are.
    With `program` what the whole program has made is noted at its end too.
    `active`: a call that is noted runs now; `full`: copies would take more than the cap, and calls are no longer noted.
    """

    def __init__(self, *, most: int, cap_bytes: int, vary: int, program: ProgramState | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.full = False
        self.active = False
        self._most, self._left, self._vary = most, cap_bytes, vary
        self._program = program
        self._kept: dict[tuple[str, str], torch.Tensor] = {}
        self._watched: dict[str, Any] = {}
        self._totals: Counter[str] = Counter()
        self._names: dict[Any, str] = {}
        self._leaves: list[tuple[dict[str, Any], str, Any]] = []

    def before(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        """Note a call that is about to be made; gives what notes its end."""
        name = self._names.setdefault(_identity(callee.original), f"{callee.number} {callee.name}")
        self._totals[name] += 1
        number = self._totals[name]
        if self._vary:
            with aside():
                _vary((*args, *kwargs.values()), self._vary)
        if number > self._most or self.full:
            return None
        self._watched.setdefault(name, callee.original)
        with aside():
            self._note_gradients()
            state = find_state(callee.original, args, kwargs)
            entries = [("mode", "what is in force", repr(Mode.of(callee.original)))]
            entries += self._of_state(state, "given")
        record: dict[str, Any] = {"callee": name, "number": number, "before": entries, "after": [], "gradients": []}
        self.calls.append(record)
        self._watch_gradients(record, state)
        objects = {text: held.tensor for text, held in state.held.items()}
        self.active = True

        def after(result: Any, error: BaseException | None) -> None:
            self.active = False
            with aside():
                if error is not None:
                    record["after"] = [("raised", "the call", type(error).__name__)]
                    return
                now = find_state(callee.original, args, kwargs)
                record["after"] = [*self._of_results(result, now), *self._of_state(now, "left"), *_replaced(objects, now)]

        return after

    def end(self) -> None:
        """Note the state that the callables reach when the program ends, and how often each was called."""
        with aside():
            self._note_gradients()
            for name, original in self._watched.items():
                self.calls.append({"callee": name, "number": 0, "after": self._of_state(find_state(original), "at the end")})
        totals = [("calls", name, count) for name, count in sorted(self._totals.items())]
        self.calls.append({"callee": "", "number": 0, "after": totals})
        if self._program is not None:
            with aside():
                self.calls.append({"callee": PROGRAM, "number": 0, "after": self._program.entries(self._copy)})

    def save(self, path: str) -> None:
        """Write all into a file that `torch.load` reads with `weights_only`."""
        torch.save({"calls": self.calls, "full": self.full}, path)

    def _watch_gradients(self, record: dict[str, Any], state: State) -> None:
        """The gradients that the program's own backward gives to what the call is given: nothing else may show those of inputs."""
        wanted = {name: held.tensor for name, held in state.held.items() if held.kind == "input" and held.tensor.requires_grad}
        for name, tensor in wanted.items() if torch.is_grad_enabled() else ():
            if tensor.is_leaf:
                self._leaves.append((record, name, tensor))
            elif compiled_autograd_is_on():
                record["gradients"].append(("gradient", name, "not compared: gradient under compiled autograd"))
            else:
                tensor.grad_fn.register_prehook(self._hook(record["gradients"], name, tensor.output_nr))

    def _hook(self, gradients: list[Any], name: str, number: int) -> Any:
        def dynadiag_watch(arrived: tuple[Any, ...]) -> None:
            with aside():
                value = arrived[number]
                gradients.append(("gradient", f"{name} in backward {len(gradients)}", None if value is None else self._copy("", "", value)))

        return dynadiag_watch

    def _note_gradients(self) -> None:
        """What has arrived at leaves since the call that they were given to."""
        for record, name, leaf in self._leaves:
            record["gradients"].append(
                ("gradient", f"{name} until the next call", None if leaf.grad is None else self._copy("", "", leaf.grad))
            )
        self._leaves.clear()

    def _of_state(self, state: State, when: str) -> list[tuple[str, str, Any]]:
        found = [(when, name, self._copy(when, name, held.tensor)) for name, held in state.held.items()]
        for name, held in state.held.items():
            gradient = held.tensor.grad if held.tensor.is_leaf else None
            found.append(("gradient", name, None if gradient is None else self._copy("gradient", name, gradient)))
        for name, slot in state.slots.items():
            value = slot.get()
            # None is also what a name has that is no global of the function.
            if isinstance(value, _PLAIN) and value is not None:
                found.append((f"value {when}", name, value if not isinstance(value, str) else value[:_LONGEST]))
        lengths = [("lengths", "containers", sorted(len(container) for container in state.containers))]
        drawn = RandomStates.now(wake_numpy=False).digests()
        return [*found, *lengths, *(("random numbers", name, digest) for name, digest in drawn.items())]

    def _of_results(self, result: Any, state: State) -> list[tuple[str, str, Any]]:
        leaves: list[Any] = []
        for at, leaf in enumerate(tree_leaves(result)):
            if isinstance(leaf, (torch.Tensor, *_PLAIN)):
                leaves.append((f"output {at}", leaf))
            else:
                held = find_state(None, (leaf,)).held
                leaves.append((f"output {at}", f"a {type(leaf).__qualname__} with {len(held)} tensors"))
                leaves += [(f"output {at} {name}", item.tensor) for name, item in held.items()]
        found = [("output", name, self._copy("output", name, value)) for name, value in leaves]
        kind = type(own_part(result)[0] if isinstance(result, torch.Tensor) else result)
        shape = [("output", "the result", f"{kind.__qualname__} of {len(leaves)}")]
        parts = [(name, own_part(value)[0]) for name, value in leaves if isinstance(value, torch.Tensor)]
        made = [(name, value) for name, value in parts if is_plain(value)]
        there = [(name, element.tensor) for name, element in state.held.items() if is_plain(element.tensor)]
        names = [name for name, _ in (*made, *there)]
        pairs = sharing([value for _, value in made], [value for _, value in there])
        shared = sorted(f"{names[number]} and {names[other]}: {how}" for (number, other), how in pairs.items())
        return [*shape, *found, ("shared memory", "outputs", shared)]

    def _copy(self, where: str, name: str, value: Any) -> Any:
        """A copy that keeps sizes and strides; the one of before where nothing changed since."""
        if not isinstance(value, torch.Tensor):
            return value
        requires_grad = value.requires_grad
        value, layout = own_part(value)
        if not is_plain(value):
            return f"not compared: {type(value).__name__} of layout {value.layout}"
        key = (where if where in ("output", "gradient") else "state", name)
        kept = self._kept.get(key)
        with torch.no_grad():
            if kept is None or not _as_it_was(kept, value):
                self._left -= value.element_size() * (
                    1 + sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
                )
                self.full = self.full or self._left < 0
                if self.full:
                    return "not compared: too large"
                self._kept[key] = kept = strided_copy(value, "cpu")  # that of a GPU is the program's
        return {"tensor": kept, "device": str(value.device), "requires_grad": requires_grad, **({"layout": layout} if layout else {})}


def _as_it_was(kept: torch.Tensor, value: torch.Tensor) -> bool:
    same = (kept.shape, kept.dtype, kept.stride()) == (value.shape, value.dtype, value.stride())
    return same and bool(torch.equal(kept.to(value.device), value))


def _replaced(objects: Mapping[str, Any], now: State) -> list[tuple[str, str, Any]]:
    """Which names mean another tensor than before the call: one that is rebound is another address and other guards."""
    there = {name: held.tensor for name, held in now.held.items()}
    return [("rebound", "names", sorted(name for name, item in objects.items() if name in there and there[name] is not item))]


def _identity(original: Any) -> Any:
    """What is compiled: one that is made or compiled anew in a loop is one function, unless it holds something of its own."""
    plain = getattr(original, "__func__", original)
    own = getattr(plain, "__closure__", None) or getattr(plain, "__defaults__", None) or getattr(plain, "__kwdefaults__", None)
    code = getattr(plain, "__code__", None)
    return id(original) if code is None or own else (code, id(getattr(original, "__self__", None)))


def _vary(given: Any, rule: int) -> None:
    """Other data in the same tensors: the same values the other way round, larger or smaller by the rule; what cannot be written stays."""
    for leaf in tree_leaves(given):
        if not isinstance(leaf, torch.Tensor) or not is_plain(leaf) or not leaf.is_floating_point() or overlaps_itself(leaf):
            continue
        with torch.no_grad():
            value = leaf.data  # has a count of versions of its own: what autograd saved of the leaf is not told
            value.copy_(value.flip(list(range(value.dim()))) * (-0.75, 1.5)[rule % 2] + 0.0625 * (rule - 1))
