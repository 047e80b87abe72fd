"""What each of the first calls of compiled callables was given, what it gave and changed: plain data and copies of tensors in one file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from dynadiag.capture.compiled_calls import After, CompiledCallable
from dynadiag.capture.reach import Mode, State, find_state
from dynadiag.compare.aliasing import is_plain, overlaps_itself
from dynadiag.compare.notes import Notes
from dynadiag.fix.inside.judging import PROGRAM
from dynadiag.fix.inside.program_state import ProgramState
from dynadiag.torch_compat.aot.autograd_engine import compiled_autograd_is_on
from dynadiag.torch_compat.dispatch.live_call import aside
from dynadiag.torch_compat.pytree import tree_leaves


class CallLog:
    """The first `most` calls of each compiled callable, and the state that they can reach after the last one.

    An entry is (where, name, value): a value is a copy of a tensor, or plain data that has to be the same. `vary` changes the floating
    tensors among the arguments of each call, by a rule, so that a program that is run again sees other data: 0 leaves them as they are.
    With `program` what the whole program has made is noted at its end too.
    `active`: a call that is noted runs now; `full`: copies would take more than the cap, and calls are no longer noted.
    """

    def __init__(self, *, most: int, cap_bytes: int, vary: int, program: ProgramState | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.active = False
        self._most, self._vary = most, vary
        self._notes = Notes(cap_bytes)
        self._program = program
        self._watched: dict[str, Any] = {}
        self._totals: Counter[str] = Counter()
        self._names: dict[Any, str] = {}
        self._leaves: list[tuple[dict[str, Any], str, Any]] = []
        self._numbers = WeakTensorKeyDictionary()

    @property
    def full(self) -> bool:
        """Whether copies would take more than the cap."""
        return self._notes.full

    def tensor_of(self, number: float) -> torch.Tensor:
        """A number that the changed program gives as a tensor: no other data, as it is none in the original."""
        made = torch.tensor(number, dtype=torch.float64)
        self._numbers[made] = None
        return made

    def before(self, callee: CompiledCallable, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        """Note a call that is about to be made; gives what notes its end."""
        name = self._names.setdefault(_identity(callee.original), f"{callee.number} {callee.name}")
        self._totals[name] += 1
        number = self._totals[name]
        if self._vary:
            with aside():
                _vary((*args, *kwargs.values()), self._vary, self._numbers)
        if number > self._most or self.full:
            return None
        self._watched.setdefault(name, callee.original)
        with aside():
            self._note_gradients()
            state = find_state(callee.original, args, kwargs)
            entries = [("mode", "what is in force", repr(Mode.of(callee.original)))]
            entries += self._notes.of_state(state, "given")
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
                record["after"] = [*self._notes.of_results(result, now), *self._notes.of_state(now, "left"), *_replaced(objects, now)]

        return after

    def end(self) -> None:
        """Note the state that the callables reach when the program ends, and how often each was called."""
        with aside():
            self._note_gradients()
            for name, original in self._watched.items():
                self.calls.append({"callee": name, "number": 0, "after": self._notes.of_state(find_state(original), "at the end")})
        totals = [("calls", name, count) for name, count in sorted(self._totals.items())]
        self.calls.append({"callee": "", "number": 0, "after": totals})
        if self._program is not None:
            with aside():
                self.calls.append({"callee": PROGRAM, "number": 0, "after": self._program.entries(self._notes.copy)})

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
                gradients.append(
                    ("gradient", f"{name} in backward {len(gradients)}", None if value is None else self._notes.copy("", "", value))
                )

        return dynadiag_watch

    def _note_gradients(self) -> None:
        """What has arrived at leaves since the call that they were given to."""
        for record, name, leaf in self._leaves:
            record["gradients"].append(
                ("gradient", f"{name} until the next call", None if leaf.grad is None else self._notes.copy("", "", leaf.grad))
            )
        self._leaves.clear()


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


def _vary(given: Any, rule: int, numbers: WeakTensorKeyDictionary) -> None:
    """Other data in the same tensors: the same values the other way round, larger or smaller by the rule; what cannot be written stays."""
    for leaf in tree_leaves(given):
        if (
            not isinstance(leaf, torch.Tensor)
            or leaf in numbers
            or not is_plain(leaf)
            or not leaf.is_floating_point()
            or overlaps_itself(leaf)
        ):
            continue
        with torch.no_grad():
            value = leaf.data  # has a count of versions of its own: what autograd saved of the leaf is not told
            value.copy_(value.flip(list(range(value.dim()))) * (-0.75, 1.5)[rule % 2] + 0.0625 * (rule - 1))
