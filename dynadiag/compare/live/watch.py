"""`explain --parity` in the user's process: calls of compiled graphs are repeated in eager on copies of their inputs and compared.

These are the first calls of each graph, and each whose inputs share memory in a new way. The program's own results, random numbers and
output stay as they are.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch.fx import Node

from dynadiag.compare.aliasing import AliasPattern, alias_pattern, bytes_of, is_plain, same_bits, snapshot
from dynadiag.compare.live.backward import Backward, SeenBackward, edges_of
from dynadiag.compare.live.comparing import CopiedCall, compare, compare_sharing, gradient_differences, same_draws
from dynadiag.compare.live.execution import How, execute, noise_anchors
from dynadiag.compare.live.graph_copy import GraphCopy, copy_graph
from dynadiag.compare.live.regions import Expectation, HeldOutputs, LiveOptions, Region
from dynadiag.compare.live.writes import hidden_writes, place, writes_of
from dynadiag.model.difference import Difference
from dynadiag.torch_compat.aot.autograd_engine import casting, compiled_autograd_is_on, set_casting, unseen
from dynadiag.torch_compat.dispatch.live_call import RandomState, aside, is_higher_order, is_no_error, why_not_now
from dynadiag.torch_compat.dynamo.user_compiler import watch_calls, watch_compiler
from dynadiag.torch_compat.trace import structured
from dynadiag.torch_compat.trace.hooks import Hooks, Sink

_MORE_PATTERNS = 8
_MOST_DIFFERENCES = 20
_TEXT = 500
_MEMORY_FACTOR = 3


class LiveComparison:
    """Repeats calls of compiled graphs, and writes a `dynadiag_parity` record for each.

    `begun` counts the graphs; `asleep`: in a copy of the process nothing is compared.
    """

    def __init__(self, sink: Sink, options: LiveOptions, epoch: Callable[[], int], make_room: Callable[[], object] = lambda: None) -> None:
        self._sink, self._options, self._epoch, self._make_room = sink, options, epoch, make_room
        self.begun = 0
        self.asleep = False
        self.whole_call: Callable[[], tuple[int, int] | None] = lambda: None
        self._waiting: dict[object, tuple[int, weakref.ref[Backward]]] = {}

    def watch(self, output_graph: ModuleType, hooks: Hooks) -> None:
        """Compare calls of every graph that is compiled from now on, but those that torch serialises or exports."""

        def end(region: Region | None, compiled: Any) -> Any:
            if region is None:
                return compiled
            before, after = functools.partial(self._before, region), functools.partial(self._after, region)
            return watch_calls(compiled, before, after=after, failed=functools.partial(self._raised, region))

        watch_compiler(output_graph, self._begin, end=end, replace=hooks.replace)

    def _begin(self, output_graph: Any, module: Any, _: Any) -> Region | None:
        """Before the backend gets the graph, which it may change."""
        if self.asleep:
            return None
        graph, self.begun = self.begun, self.begun + 1
        if getattr(output_graph, "package", None) is not None or getattr(output_graph, "export", False):
            return None
        ids = structured.current_compile_ids()
        try:
            copy: GraphCopy | None = None
            why_not: str | None = "it belongs to compiled autograd"
            if "compiled_autograd_id" not in ids:
                copy = copy_graph(module, getattr(output_graph, "param_name_to_source", None))
                why_not = copy.why_not
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._sink.failed("parity", error)
            copy, why_not = None, f"its graph could not be copied: {_short(error)}"
        return Region(copy if why_not is None else None, why_not, ids, self._epoch(), graph)

    def _before(self, region: Region, number: int, args: tuple[Any, ...]) -> Expectation | None:
        if self.asleep:
            return None
        try:
            if region.why_not is not None:
                self._not_compared(region, number, (), region.why_not)
                return None
            tensors = [*args, *region.attributes]
            pattern = alias_pattern(tensors)
            held, region.held = region.held, None
            if held:
                held.settle(tensors)
            plain = Expectation(number, pattern, held=held) if held else None
            if not self._wanted(region, number, pattern):
                return plain
            why_not = self._why_not(tensors)
            if why_not is not None:
                self._not_compared(region, number, pattern, why_not)
                return plain
            return self._expect(region, Expectation(number, pattern, held=held), tensors)
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._sink.failed("parity", error)
            self._not_compared(region, number, (), f"dynadiag failed: {_short(error)}")
            return None

    def _wanted(self, region: Region, number: int, pattern: AliasPattern) -> bool:
        new = pattern not in region.patterns
        if new:
            region.patterns[pattern] = number
        return number <= self._options.calls or (new and len(region.patterns) <= self._options.calls + _MORE_PATTERNS)

    def _why_not(self, tensors: list[Any]) -> str | None:
        for value in tensors:
            if isinstance(value, torch.Tensor) and not is_plain(value):
                return f"an input is a {type(value).__name__} ({value.layout}, {value.device.type}) that cannot be copied"
            if not isinstance(value, torch.Tensor | int | float | complex | bool | str | torch.dtype | torch.device | type(None)):
                return f"an input is a {type(value).__name__}, which cannot be copied"
        if not torch.is_inference_mode_enabled() and any(isinstance(value, torch.Tensor) and value.is_inference() for value in tensors):
            return "an input is an inference tensor, of which no copy can be made outside inference mode"
        size = bytes_of(tensors)
        if size * _MEMORY_FACTOR > self._options.cap_bytes:
            return f"copies of its inputs need {size * _MEMORY_FACTOR} bytes, the limit is {self._options.cap_bytes}"
        self._make_room()
        return why_not_now(tensors)

    def _expect(self, region: Region, plain: Expectation, tensors: list[Any]) -> Expectation:
        assert region.copy is not None
        eager, raised, edges, refused = None, None, {}, list[Node]()
        with aside():
            draws = RandomState()
            with torch.inference_mode(False):
                pristine = snapshot(tensors)
                inputs = snapshot(pristine)
            if torch.is_grad_enabled():
                edges = edges_of(tensors)
            try:
                eager = execute(region.copy, inputs, How(), refused=refused)
            except Exception as error:  # noqa: BLE001 - border: what eager raises is compared too
                raised = _short(error)
        told = replace(plain, pristine=pristine, inputs=inputs, eager=eager, raised=raised, edges=edges, draws=draws)
        return replace(told, refused=refused[0]) if refused else told

    def _after(self, region: Region, expected: Expectation, args: tuple[Any, ...], results: Any) -> None:
        try:
            with aside():
                overwritten = expected.held.overwritten() if expected.held is not None else ()
                eager = expected.eager
                if eager is None:
                    self._without_eager(region, expected, overwritten, [*args, *region.attributes])
                    return
                made, passed = list(results), [*args, *region.attributes]
                found = (*overwritten, *self._compare(region, expected, passed, made))
                if not found and eager.random:
                    expected = replace(expected, drawn_alike=_drawn_alike(region, expected, passed, made))
                awaits = self._await_backward(region, expected, [*made, *passed]) if not found else False
                if not found:
                    cap = self._options.cap_bytes
                    region.held = HeldOutputs.of_call(expected.number, made, eager.outputs, eager.random_outputs, cap_bytes=cap)
                self._tell(region, expected, found, awaits=awaits)
        except Exception as error:  # noqa: BLE001 - border: our hooks in the user's process
            self._sink.failed("parity", error)
            self._not_compared(region, expected.number, expected.pattern, f"dynadiag failed: {_short(error)}")

    def _without_eager(self, region: Region, expected: Expectation, overwritten: tuple[Difference, ...], passed: list[Any]) -> None:
        """The call raised in eager, or only what was held of the one before was watched."""
        found = (*overwritten, *_accepted(region, expected, passed))
        if found:
            self._tell(region, expected, found)
        elif expected.raised is not None:
            self._not_compared(region, expected.number, expected.pattern, f"the call in eager raised {expected.raised}")

    def _raised(self, region: Region, expected: Expectation, error: Exception) -> None:
        if not expected.compared or is_no_error(error):
            return
        try:
            if expected.eager is None:
                self._both_raised(region, expected, error)
                return
            raised = Difference(kind="raises", where="output", index=0, name="the call", eager="nothing raised", compiled=_short(error))
            self._tell(region, expected, (raised,))
        except Exception as ours:  # noqa: BLE001 - border: our hooks in the user's process
            self._sink.failed("parity", ours)

    def _both_raised(self, region: Region, expected: Expectation, error: Exception) -> None:
        """The operators of the graph raise in eager as well: whether the program catches that there, its source tells."""
        both = Difference(
            kind="both_raise", where="call", index=0, name="the call", eager=expected.raised or "an error", compiled=_short(error)
        )
        why = f"eager and the compiled call raised: {expected.raised}"
        self._not_compared(region, expected.number, expected.pattern, why, (self._described(region, both, expected),))

    def _compare(self, region: Region, expected: Expectation, tensors: list[Any], results: list[Any]) -> tuple[Difference, ...]:
        eager, copy = expected.eager, region.copy
        assert eager is not None
        assert copy is not None

        def again(values: list[Any], how: How) -> tuple[list[Any], list[Any]]:
            return execute(copy, values, how).outputs, values

        anchors = functools.cache(lambda: noise_anchors(expected.pristine, eager.coarsest, eager.indices, again, parts=2))
        outputs = compare(
            eager.outputs,
            results,
            [f"output {at}" for at in range(len(results))],
            where="output",
            anchors=lambda: anchors()[0],
            coarsest=eager.coarsest,
            no_values=eager.random_outputs,
        )
        inputs = compare(
            expected.inputs,
            tensors,
            copy.names,
            where="input",
            anchors=lambda: anchors()[1],
            coarsest=eager.coarsest,
            before=expected.pristine,
            no_values=eager.random_inputs,
        )
        sharing = compare_sharing((eager.outputs, expected.inputs), (results, tensors), copy.names)
        return (*inputs, *outputs, *sharing)

    # -- gradients

    def _await_backward(self, region: Region, expected: Expectation, values: list[Any]) -> bool:
        """Watch the program's own backward through this call; False where there is none to watch."""
        eager, copy = expected.eager, region.copy
        assert eager is not None
        assert copy is not None
        if not expected.edges or not any(isinstance(item, torch.Tensor) and item.requires_grad for item in values[: len(eager.outputs)]):
            return False
        size = bytes_of(expected.pristine)
        why_not = "compiled autograd would compile the hooks too" if compiled_autograd_is_on() else None
        if why_not is None and expected.writes_shared():
            why_not = "inputs that require grad share memory, and one is written"
        waiting = sum(of_one for of_one, _ in list(self._waiting.values()))
        if why_not is None and waiting + size > self._options.cap_bytes:
            why_not = f"copies of inputs of calls that wait for their backward need more than {self._options.cap_bytes} bytes"
        watching = None
        if why_not is None:
            draws = expected.draws if expected.drawn_alike else None
            random = eager.random and not expected.drawn_alike
            watching = self._watch(
                region, expected, CopiedCall(copy, expected.pristine, eager.coarsest, random, eager.indices, draws), size
            )
            why_not = watching.attach(values)
        if why_not is not None:
            self._not_compared(region, expected.number, expected.pattern, f"gradients: {why_not}")
        return why_not is None and watching is not None and watching.watches

    def _watch(self, region: Region, expected: Expectation, call: CopiedCall, size: int) -> Backward:
        number, pattern, around, key = expected.number, expected.pattern, casting(), object()

        def finished(seen: SeenBackward) -> None:
            self._waiting.pop(key, None)
            try:
                with aside():
                    set_casting(around)
                    found = gradient_differences(call, seen)
                    random = len(seen.gradients) if call.random else 0
                    self._tell(region, Expectation(number, pattern), found, backward=True, random=random)
            except Exception as error:  # noqa: BLE001 - border: user code in eager's backward, and our hooks in the user's process
                self._not_compared(region, number, pattern, f"gradients: eager's backward raised {_short(error)}")

        watching = Backward(expected.edges, finished, lambda error: self._sink.failed("parity", error))
        # No weakref.finalize: its frames in the standard library would be compiled.
        self._waiting[key] = size, weakref.ref(watching, unseen(lambda _: self._waiting.pop(key, None)))
        return watching

    # -- records

    def _tell(
        self,
        region: Region,
        expected: Expectation,
        found: tuple[Difference, ...],
        *,
        awaits: bool = False,
        backward: bool = False,
        random: int = 0,
    ) -> None:
        if expected.eager is not None and not expected.drawn_alike:
            random = len(expected.eager.random_outputs) + len(expected.eager.random_inputs)
        told: dict[str, Any] = {"verdict": "different" if found else "equal", "random_values": random}
        told |= {"awaits_backward": awaits, "backward": backward}
        if found:
            told |= {
                "differences": [self._described(region, difference, expected) for difference in found[:_MOST_DIFFERENCES]],
                "more_differences": max(len(found) - _MOST_DIFFERENCES, 0),
                "writes": writes_of(region.copy, expected) if region.copy is not None and expected.eager is not None else [],
            }
        elif region.copy is not None:
            told["writes"] = hidden_writes(region.copy, expected)
        self._record(region, expected.number, expected.pattern, told)

    def _described(self, region: Region, difference: Difference, expected: Expectation) -> dict[str, Any]:
        """A difference and, for an output, the node that makes it; for a gradient, the last node that reads the input."""
        nodes = [] if expected.eager is None else expected.eager.nodes
        node = (
            nodes[difference.index]
            if difference.where == "output" and difference.index < len(nodes) and difference.kind != "raises"
            else None
        )
        if difference.kind in ("accepts", "both_raise"):
            node = expected.refused
        if difference.where == "gradient" and region.copy is not None:
            node = region.copy.last_reader(difference.index)
        return {**difference.to_json(), **place(node)}

    def _not_compared(
        self, region: Region, number: int, pattern: AliasPattern, why: str, differences: tuple[dict[str, Any], ...] = ()
    ) -> None:
        """Said once for each reason of a graph."""
        if why not in region.told:
            region.told.add(why)
            more = {"differences": list(differences)} if differences else {}
            self._record(region, number, pattern, {"verdict": "not_compared", "why": why[:_TEXT], **more})

    def _record(self, region: Region, number: int, pattern: AliasPattern, told: dict[str, Any]) -> None:
        names = region.copy.names if region.copy is not None else ()
        shared = [{"inputs": [names[item], names[other]], "positions": [item, other], "how": how} for item, other, how in pattern[:50]]
        head = {"format": 1, "graph": region.graph, "epoch": region.epoch, "call": number, "whole": self.whole_call()}
        self._sink.artifact("dynadiag_parity", {**head, **told, "shared": shared}, compile_ids=region.compile_ids)


def _accepted(region: Region, expected: Expectation, passed: list[Any]) -> tuple[Difference, ...]:
    """An operator refused the call in eager, and the compiled call returned: what it did then, with the inputs that it wrote."""
    if expected.refused is None or region.copy is None:
        return ()
    pairs = zip(region.copy.names, expected.pristine, passed, strict=False)
    written = [name for name, old, new in pairs if is_plain(old) and is_plain(new) and not same_bits(old, new)]
    did = f"returned and wrote {', '.join(written[:8])}" if written else "returned"
    return (
        Difference(
            kind="accepts",
            where="output",
            index=0,
            name="the call",
            eager=f"raised {expected.raised.rstrip('.') if expected.raised else 'an error'}",
            compiled=did,
        ),
    )


def _drawn_alike(region: Region, expected: Expectation, passed: list[Any], made: list[Any]) -> bool:
    """Whether all that depends on random numbers is what eager has, and would not be for other random numbers."""
    eager, draws, copy = expected.eager, expected.draws, region.copy
    assert eager is not None
    assert draws is not None
    assert copy is not None
    # Checkpoint's operator, called in eager, computes again with other random numbers (`torch/_higher_order_ops/wrap.py`).
    if any(is_higher_order(node.target) for node in copy.graph.nodes):
        return False

    def random_ones(outputs: list[Any], inputs: list[Any]) -> list[Any]:
        return [outputs[at] for at in sorted(eager.random_outputs)] + [inputs[at] for at in sorted(eager.random_inputs)]

    def otherwise(seed: int) -> list[Any]:
        draws.reseed(seed)
        values = snapshot(expected.pristine)
        return random_ones(execute(copy, values, How(indices=eager.indices)).outputs, values)

    try:
        return same_draws(random_ones(eager.outputs, expected.inputs), random_ones(made, passed), otherwise, eager.coarsest)
    except Exception:  # noqa: BLE001 - border: a graph that does not run on other random numbers tells nothing
        return False


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_TEXT]
