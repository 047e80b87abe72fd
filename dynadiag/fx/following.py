"""A graph followed node by node, into the bodies of its higher order operators, with each write blamed on the inputs of its storage."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from dynadiag.errors import NotRebuildableError
from dynadiag.fx.building import ANNOTATION
from dynadiag.fx.inputs import computed, fake_from_spec, on_device, spec_from_annotation
from dynadiag.fx.missing_operators import MissingOperator
from dynadiag.fx.mutation_records import WriteKind, WriteSite
from dynadiag.fx.source_text import TensorNote, parse_annotation
from dynadiag.torch_compat import pytree
from dynadiag.torch_compat.dispatch.writes import is_higher_order, operator_name, storages, write_kind
from dynadiag.trace import sizes

Runner = Callable[[GraphModule, Sequence[Any]], Any]
_LEFT_ALONE = ("auto_functionalized", "triton", "flex_attention", "out_dtype", "run_const_graph", "with_effects", "rng_state")


def follows(name: str, args: Sequence[Any]) -> bool:
    """Whether the probe runs the bodies of this operator itself; the others are called as they are."""
    return not any(part in name for part in _LEFT_ALONE) and any(isinstance(item, GraphModule) for item in pytree.tree_leaves(list(args)))


def run_bodies(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], run: Runner) -> Any:
    """The result of the operator, each of its bodies having run once on its operands."""
    if name == "cond":
        branches = [run(args[1], list(args[3])), run(args[2], list(args[3]))]
        return branches[0]
    if name.startswith("while_loop"):
        carried, extra = list(args[2]), list(args[3]) if len(args) > 3 else []
        run(args[0], [*carried, *extra])
        return run(args[1], [*carried, *extra])
    if name in _LOOPS:
        return _LOOPS[name]([*args, *kwargs.values()], run)
    body, operands = _first_body(args)
    if name == "autograd_function_apply":
        return _apply(body, operands, run)
    with torch.set_grad_enabled(args[0] if name == "wrap_with_set_grad_enabled" else torch.is_grad_enabled()):
        return run(body, operands)


def _first_body(args: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    """The body that does the work, and as many operands as it takes."""
    body = next(item for item in args if isinstance(item, GraphModule))
    operands = [item for item in pytree.tree_leaves([item for item in args if not isinstance(item, GraphModule)]) if _is_operand(item)]
    return body, operands[: len(body.graph.find_nodes(op="placeholder"))]


def _apply(body: GraphModule, operands: list[Any], run: Runner) -> Any:
    """`autograd.Function`: its forward runs without grad; its results require grad when an operand does."""
    with torch.no_grad():
        result = run(body, operands)
    outputs = result[0] if isinstance(result, tuple) and len(result) == 2 else result
    if not torch.is_grad_enabled() or not any(isinstance(item, torch.Tensor) and item.requires_grad for item in operands):
        return outputs
    return pytree.tree_map(_with_gradient, outputs)


def _with_gradient(value: Any) -> Any:
    tracked = isinstance(value, torch.Tensor) and not value.requires_grad and (value.is_floating_point() or value.is_complex())
    return computed(value) if tracked else value


def _is_operand(item: Any) -> bool:
    return isinstance(item, (torch.Tensor, torch.SymInt, int, float)) and not isinstance(item, bool)


def _scan(args: Sequence[Any], run: Runner) -> Any:
    body, initial, rows = args[0], list(args[1]), list(args[2])
    extra = list(args[3]) if len(args) > 3 else []
    result = list(run(body, [*initial, *(row[0] for row in rows), *extra]))
    length = rows[0].shape[0] if rows else 1
    return (*result[: len(initial)], *(_stacked(item, length) for item in result[len(initial) :]))


def _associative(args: Sequence[Any], run: Runner) -> Any:
    body, rows = args[0], list(args[1])
    extra = list(args[2]) if len(args) > 2 else []
    run(body, [*(row[0] for row in rows), *(row[0] for row in rows), *extra])
    return tuple(row.clone() for row in rows)


def _map(args: Sequence[Any], run: Runner) -> Any:
    body, rows, extra = args[0], list(args[1]), list(args[2]) if len(args) > 2 else []
    result = run(body, [*(row[0] for row in rows), *extra])
    return tuple(_stacked(item, rows[0].shape[0]) for item in result)


def _stacked(item: Any, length: int) -> Any:
    return torch.stack([item] * int(length)) if isinstance(item, torch.Tensor) else item


_LOOPS: dict[str, Callable[[Sequence[Any], Runner], Any]] = {
    "scan": _scan,
    "associative_scan": _associative,
    "map": _map,
    "map_impl": _map,
}


_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d{1,9}), in (?P<function>[^\n]*)\n\s*(?P<code>[^\n]*)')
_REQUIRES_GRAD = ("requires_grad_", "_set_tensor_requires_grad")


class _Unsaid:
    """The result of an operator that is not here and whose result the text does not describe as a whole."""


class Follower(Interpreter):
    """Runs a graph on the inputs it is given; `writes` are the writes by input, `notes` and `unknown` what could not be told."""

    def __init__(
        self,
        module: GraphModule,
        *,
        lifted: Mapping[str, Any],
        owners: Mapping[int, Sequence[int]],
        symbols: Mapping[str, sizes.Number],
        parent: Follower | None = None,
    ) -> None:
        super().__init__(module, garbage_collect_values=True)
        self.extra_traceback = False
        self._lifted = lifted
        self._owners = owners
        self._symbols = symbols
        self._node: Node | None = None
        self._root: Follower = self if parent is None else parent._root
        self._through: tuple[str, ...] = () if parent is None else (*parent._through, parent._node.name if parent._node else "?")
        self._active: Follower = self
        self.writes: dict[int, list[WriteSite]] = {} if parent is None else parent.writes
        self.notes: list[str] = [] if parent is None else parent.notes
        self.unknown: list[str] = [] if parent is None else parent.unknown

    def saw(self, op: Any, argument: str, tensor: torch.Tensor, elements: int | None) -> None:
        """The dispatch mode saw `op` write `tensor`."""
        touched = None if elements is None else elements * tensor.element_size()
        self._blame(tensor, str(op), argument, write_kind(op), touched)

    def _blame(self, tensor: torch.Tensor, op: str, argument: str, kind: WriteKind, touched: int | None) -> None:
        for key in storages(tensor):
            for index in self._owners.get(key, ()):
                site = self._root._active._site(op, argument, kind, touched)
                sites = self._root.writes.setdefault(index, [])
                if site not in sites[-8:]:
                    sites.append(site)

    def _site(self, op: str, argument: str, kind: WriteKind, touched: int | None) -> WriteSite:
        node = self._node
        return WriteSite(
            node=None if node is None else node.name,
            op=op,
            argument=argument,
            stack=user_stack(None if node is None else node.meta.get("stack_trace")),
            no_grad=not torch.is_grad_enabled() or torch.is_inference_mode_enabled(),
            kind=kind,
            metadata=kind == "metadata",
            through=self._through,
            bytes_touched=touched,
        )

    def run_node(self, n: Node) -> Any:
        """The value of a node; bodies of higher order operators and operators that are not here are followed in a way of their own."""
        self._node = n
        if isinstance(n.target, MissingOperator):
            return self._missing_operator(n, n.target)
        if n.op == "call_function" and is_higher_order(n.target):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            name = operator_name(n.target)
            if follows(name, args):
                return run_bodies(name, args, kwargs, self._run_body)
        if n.target in _REQUIRES_GRAD or getattr(n.target, "__name__", "") in _REQUIRES_GRAD:
            self._requires_grad(n)
        result = super().run_node(n)
        return self._described(n) if isinstance(result, _Unsaid) else result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function; a part of an undescribed result is undescribed until its own node says more."""
        if args and isinstance(args[0], _Unsaid):
            return args[0]
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An attribute of the graph; parameters and buffers are those that the probe made, to know them again."""
        return self._lifted[target] if target in self._lifted else super().get_attr(target, args, kwargs)

    def _run_body(self, body: GraphModule, operands: Sequence[Any]) -> Any:
        inner = Follower(body, lifted={}, owners=self._owners, symbols=self._symbols, parent=self)
        before, self._root._active = self._root._active, inner
        try:
            return inner.run(*operands)
        finally:
            self._root._active = before

    def _requires_grad(self, n: Node) -> None:
        args, _ = self.fetch_args_kwargs_from_env(n)
        if args and isinstance(args[0], torch.Tensor):
            self._blame(args[0], "aten::requires_grad_", "self", "requires_grad", 0)

    def _missing_operator(self, n: Node, target: MissingOperator) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        writes = target.writes(args, kwargs)
        if writes is None:
            self.unknown.append(f"what `{target.printed}` writes is not recorded")
        for write in writes or ():
            for tensor in write.value if isinstance(write.value, (list, tuple)) else (write.value,):
                if isinstance(tensor, torch.Tensor):
                    self._blame(tensor, target.printed.removeprefix("torch.ops."), write.argument, "data", _bytes(tensor))
        if writes is not None:
            self.notes.append(f"`{target.printed}` is followed by its schema: a write that it does not declare is not seen")
        returned = target.returned(args, kwargs)
        if returned is not None or not target.has_result:
            return returned
        made, taken = self._described(n), pytree.tree_leaves([args, kwargs])
        tracked = torch.is_grad_enabled() and any(isinstance(item, torch.Tensor) and item.requires_grad for item in taken)
        return computed(made) if tracked and isinstance(made, torch.Tensor) and made.is_floating_point() else made

    def _described(self, n: Node) -> Any:
        """A tensor as the text annotates the node."""
        annotation = n.meta.get(ANNOTATION)
        if not isinstance(parse_annotation(annotation), TensorNote):
            return _Unsaid()
        try:
            spec = spec_from_annotation(n.name, annotation, self._symbols, any_class=True)
        except NotRebuildableError:
            return _Unsaid()
        return fake_from_spec(on_device(spec, "cpu"))


def user_stack(trace: Any) -> tuple[tuple[str, int, str, str], ...]:
    """(file, line, function, code) of each frame of a printed stack trace, outermost first."""
    if not isinstance(trace, str):
        return ()
    frames = _FRAME.finditer(trace)
    return tuple((frame["file"], int(frame["line"]), frame["function"].strip(), frame["code"].strip()) for frame in frames)


def _bytes(tensor: torch.Tensor) -> int | None:
    try:
        return int(tensor.numel()) * tensor.element_size()
    except (RuntimeError, TypeError):
        return None
