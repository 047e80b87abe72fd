"""Graph breaks that a mutation causes: the text of the break says what is mutated, the recorded line which tensor or object.

Texts and ids: `torch/_dynamo/graph_break_registry.json` of 2.11 and 2.15; a rule looks at the type's words, so that logs without ids work.
Explanation and context also hold what the program passes (`layout=`, a message of `graph_break`), so they never choose a rule: the rule of
a type reads the part of them that torch writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dynadiag.facts.lookups import traced_by_frame
from dynadiag.facts.user_frames import normal_path, own_frame, source_function
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.run import BreakEvent, Frame, Run
from dynadiag.passes.mutation_facts import Effect, Fact, Site
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.place import line_at
from dynadiag.source.writes import written_tensor

_Rule = Callable[[BreakEvent, Frame, Run], "Found | None"]
_CALLED = re.compile(r"calling `(?P<source>.+)\.(?P<method>\w+)`")
# What torch itself keeps Dynamo out of: fused kernels, LBFGS (torch/_dynamo/eval_frame.py `TorchPatcher`, 2.11 to 2.15) and `zero_grad`.
_EAGER_STEP = re.compile(r"<function (?P<disabled>_fused_\w+|\w+\.step) at|qualname: (?P<skipped>\w+\.(?:step|zero_grad)),")
_INPLACE_VIEW = "Getting an inplace view on a graph input is not supported"
_RNG = re.compile(r"module: torch(?:\.\w+)*, qualname: (set_rng_state|manual_seed|manual_seed_all|seed|seed_all|set_rng_state_all)\b")
# "ContextVar('name').set()" in 2.15, and "call_method UserDefinedObjectVariable(ContextVar) set [...] {}" in 2.11.
_CONTEXT_VARIABLE = re.compile(r"^ContextVar\(.*\)\.(?:re)?set\(|\(ContextVar\) (?:re)?set ")


@dataclass(frozen=True, slots=True)
class Found:
    """What a break mutates: the code, Dynamo's name (or as close as the record allows), the kind, and what was called."""

    code: str
    input: str
    kind: str
    op: str | None


def break_facts(run: Run) -> Iterator[Fact]:
    """One fact for each break event that a mutation causes."""
    frames = {frame.id: frame for frame in run.frames}
    for event in run.breaks:
        frame = frames.get(event.frame)
        found = _found(event, frame, run) if frame is not None else None
        if frame is not None and found is not None:
            yield _fact(event, frame, found, run)


def _fact(event: BreakEvent, frame: Frame, found: Found, run: Run) -> Fact:
    own = own_frame(event.stack, run) or event.torch_frame
    failed = frame.outcome == "failed"
    what = f"Dynamo cannot trace this write ({_cause(event)}{_in_hook(event)})"
    effect = (
        Effect("error", "observed", f"{what}, and a graph break is not allowed here: the compilation failed")
        if failed
        else Effect("graph_break", "observed", f"{what}: the graph ends before it, the write runs eagerly, and a new graph begins after it")
    )
    place = event.torch_frame
    doubts = ("torch does not say which line of the body writes it; the line shown calls the operator",) if found.op is None else ()
    unknown = dict.fromkeys(
        ("bytes_touched", "bytes_written_back", "no_grad", "static", "where"), "the write is in no graph: Dynamo broke before it"
    )
    return Fact(
        code=found.code,
        frame=frame,
        input=found.input,
        kind=found.kind,
        effects=(effect,),
        sites=(Site(own, found.op, None if place is None or own is None or place.is_same_line(own) else place),),
        doubts=doubts,
        unknown=unknown,
    )


def _cause(event: BreakEvent) -> str:
    """What torch calls the break, shortened; of a body that must be captured completely the cause, which stands below that heading."""
    lines = [line for line in event.gb_type.splitlines() if line.strip()] or [""]
    return (lines[1] if lines[0].endswith("Got graph break/error:") and len(lines) > 1 else lines[0])[:120]


def _in_hook(event: BreakEvent) -> str:
    """Where torch 2.15 says that the body is a hook on a gradient (`Found in register_hook`)."""
    match = re.search(r"Found in (register_\w*hook)\b", event.explanation or "")
    return f", in a {match[1]}" if match else ""


def _found(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    for words, rule in _RULES:
        if words in event.gb_type:
            found = rule(event, frame, run)
            if found is not None:
                return found
    return None


def _inplace_view(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """`x.t_()`, `x.unsqueeze_(0)`, `x.set_(y)` on an input: the explanation names Dynamo's source and the method."""
    match = _CALLED.search(event.explanation or "")
    if match is None or _INPLACE_VIEW not in (event.explanation or ""):
        return None
    method = match["method"]
    code, kind = (codes.STORAGE_REPLACED, "storage") if method in ("set_", "resize_", "resize_as_") else (codes.SIZES_CHANGED, "metadata")
    return Found(code, match["source"], kind, method)


def _requires_grad(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    line = _line(event, run)
    call = next(line.methods("requires_grad_"), None)
    target = next((node for node in line.nodes if isinstance(node, ast.Assign | ast.AnnAssign)), None)
    receiver = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if receiver is not None and dotted(receiver) is not None:
        return Found(codes.REQUIRES_GRAD_CHANGED, _named(dotted(receiver) or "", event, frame), "requires_grad", "requires_grad_")
    if isinstance(target, ast.Assign) and isinstance(target.targets[0], ast.Name):
        return Found(codes.REQUIRES_GRAD_CHANGED, f"{target.targets[0].id} (made in the compiled code)", "requires_grad", "requires_grad_")
    return Found(codes.REQUIRES_GRAD_CHANGED, "a tensor on this line", "requires_grad", "requires_grad_")


def _data_setter(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    target = _assigned_attribute(event, run, "data")
    return Found(codes.STORAGE_REPLACED, _named(target, event, frame) if target else "a tensor on this line", "storage", "data=")


def _out(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    for node in _line(event, run).nodes:
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg == "out" and dotted(keyword.value) is not None:
                return Found(codes.OUT_RESIZED, _named(dotted(keyword.value) or "", event, frame), "storage", "out=")
    return Found(codes.OUT_RESIZED, "the tensor given as out=", "storage", "out=")


def _unsafe_side_effect(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """A Python object changed in the body of a higher order operator (checkpoint, cond, ...)."""
    line = _line(event, run)
    for node in line.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGERS:
            owner = dotted(node.func.value)
            if owner is not None:
                return Found(codes.WRITTEN_IN_BODY, owner, "python", node.func.attr)
    for node in line.nodes:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return Found(codes.WRITTEN_IN_BODY, line.text(target), "python", "assignment")
    return Found(codes.WRITTEN_IN_BODY, "a Python object of an outer function", "python", None)


def _not_undone(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """An attribute changed in a body and not restored (torch 2.15): the explanation names the attribute, the record no line in the body."""
    match = re.search(r"Attribute '(?P<name>\w+)' on an outer-scope object", event.explanation or "")
    return Found(
        codes.WRITTEN_IN_BODY,
        f"attribute {match['name']} of an outer object" if match else "a Python object of an outer function",
        "python",
        None,
    )


def _body_mutates(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """A tensor of an outer function written in a body (while_loop, scan, ...): the context names its placeholder."""
    match = re.search(r"Input mutation detected at \[(?P<names>[\w, ']+)\]", event.context or "")
    names = [name.strip(" '") for name in match["names"].split(",")] if match else []
    sources = {
        re.sub(r"[^a-zA-Z0-9]+", "_", traced_input.source).lower(): traced_input.source
        for traced_input in traced_by_frame(run).get(frame.id, ())
    }
    known = [sources.get(name.lower(), name) for name in names]
    return Found(codes.WRITTEN_IN_BODY, ", ".join(known) or "an input of the body", "data", None)


def _context_variable(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    if _CONTEXT_VARIABLE.search(event.context or "") is None:
        return None
    line = _line(event, run)
    for call in line.methods("set", "reset"):
        owner = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if owner is not None:
            return Found(codes.STATE_SET, owner, "python", f"{owner}.set")
    return Found(codes.STATE_SET, "a ContextVar", "python", "ContextVar.set")


def _rng(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    match = _RNG.match(event.context or "")
    return None if match is None else Found(codes.STATE_SET, "the state of torch's random number generator", "python", match[1])


def _parameter(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """`self.weight = nn.Parameter(...)`: the parameter is replaced. A parameter that stays in a local variable mutates nothing."""
    target = _assigned_attribute(event, run, None)
    return Found(codes.PARAMETER_REPLACED, _named(target, event, frame), "python", "nn.Parameter") if target else None


def _assigned_attribute(event: BreakEvent, run: Run, attribute: str | None) -> str | None:
    """The object whose attribute the line assigns (`p` for `p.data = y`), or the whole target when any attribute will do."""
    for node in _line(event, run).nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and attribute in (None, target.attr):
                return dotted(target if attribute is None else target.value)
    return None


def _line(event: BreakEvent, run: Run) -> SourceLine:
    """The source line that mutates: torch's frame, unless that is in a library."""
    own = own_frame(event.stack, run)
    return line_at(own if own is not None and own.code else event.torch_frame, run)


def _named(name: str, event: BreakEvent, frame: Frame) -> str:
    """`L['x'].w` for `x.w` in the frame's own function; as written in a function that it calls, whose variables Dynamo does not name."""
    return local_source(name, event.torch_frame, frame)


def local_source(name: str, place: Location | None, frame: Frame) -> str:
    """Dynamo's name of an expression of names and dots at a place, if that is in the frame's own function."""
    same = place is None or place.function is None or source_function(place.function) == source_function(frame.name)
    first, dot, rest = name.partition(".")
    return f"L['{first}']{dot}{rest}" if same and first.isidentifier() else name


def _eager_step(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """A step of torch.optim that Dynamo may not trace."""
    match = _EAGER_STEP.search(event.context or "")
    name = (match["disabled"] or match["skipped"]) if match is not None else ""
    files = [normal_path(place.file) for place in (*event.stack, event.torch_frame) if place is not None]
    if not name or not (name.startswith(("LBFGS.", "Optimizer.")) or any("/torch/optim/" in file for file in files)):
        return None
    if name.endswith("zero_grad"):
        return Found(codes.OPTIMIZER_STEP, "the gradients of an optimizer's parameters", "python", name)
    return Found(codes.OPTIMIZER_STEP, "what an optimizer's step writes", "data", name)


def _method(code: str, kind: str, *names: str) -> _Rule:
    """The tensor that one of these methods is called on, by the user's line."""

    def find(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
        call = next(_line(event, run).methods(*names), None)
        written = written_tensor(call) if call is not None else None
        owner = dotted(written) if written is not None else None
        named = _named(owner, event, frame) if owner is not None else "a tensor on this line"
        op = call.func.attr if call is not None and isinstance(call.func, ast.Attribute) else names[0]
        return Found(code, named, kind, op)

    return find


def _any_inplace(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    line = _line(event, run)
    names = [call.func.attr for call in line.nodes if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)]
    inplace = [name for name in names if name.endswith("_") and not name.endswith("__")]
    return _method(codes.SIZES_CHANGED, "metadata", *inplace)(event, frame, run) if inplace else None


def _requires_grad_setter(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    target = _assigned_attribute(event, run, "requires_grad")
    return Found(
        codes.REQUIRES_GRAD_CHANGED, _named(target, event, frame) if target else "a tensor on this line", "requires_grad", "requires_grad="
    )


def _generator(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    found = _method(codes.STATE_SET, "python", "manual_seed", "set_state", "seed", "set_offset")(event, frame, run)
    return found if found is not None and found.input != "a tensor on this line" else None


def _class_attribute(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """`C.n += 1` on a class, which torch 2.11 does not trace."""
    target = _assigned_attribute(event, run, None) if re.search(r"setattr \[.*ClassVariable", event.context or "") else None
    return Found(codes.STATE_SET, target, "python", "assignment") if target is not None else None


def _generator_given(event: BreakEvent, frame: Frame, run: Run) -> Found | None:
    """`torch.rand(4, generator=g)`: the call moves the state of the generator."""
    calls = [node for node in _line(event, run).nodes if isinstance(node, ast.Call)]
    given = next((one.value for call in calls for one in call.keywords if one.arg == "generator"), None)
    owner = dotted(given) if given is not None and "Generator" in (event.context or "") else None
    return Found(codes.STATE_SET, owner, "python", "generator=") if owner is not None else None


_CHANGERS = frozenset((
    "append", "appendleft", "extend", "insert", "pop", "popleft", "popitem", "remove", "clear", "update", "setdefault", "add", "discard",
    "sort", "reverse", "rotate",
))  # fmt: skip
_RULES: tuple[tuple[str, _Rule], ...] = (
    ("Unsupported Tensor.resize_", _method(codes.STORAGE_REPLACED, "storage", "resize_", "resize_as_")),
    ("Unsupported Tensor.set_", _method(codes.STORAGE_REPLACED, "storage", "set_")),
    ("Unsupported Tensor.sparse_resize_", _method(codes.STORAGE_REPLACED, "storage", "sparse_resize_", "sparse_resize_and_clear_")),
    ("Tensor.random_ op", _method(codes.STATE_SET, "data", "random_")),
    ("Inplace op on input tensor", _any_inplace),
    ("setattr() on Tensor.requires_grad", _requires_grad_setter),
    ("Failed to mutate tensor data attribute", _data_setter),
    ("setattr() on Parameter.data", _data_setter),
    ("existing deque with limited maxlen", _unsafe_side_effect),
    ("nn.Module mutation in HigherOrderOp", _unsafe_side_effect),
    ("combine_fn mutates", _body_mutates),
    ("torch.map: f mutates", _body_mutates),
    ("torch.Generator method", _generator),
    ("Failed to convert args/kwargs to proxy", _generator_given),
    ("Unsupported function call (delayed)", _inplace_view),
    ("requires_grad_()", _requires_grad),
    ("setattr() on Tensor.data", _data_setter),
    ("Shape mismatch with out= ", _out),
    ("with non-contiguous `out=` ", _out),
    ("Unsafe side effect", _unsafe_side_effect),
    ("Non-nullified side effect", _not_undone),
    ("Encountered input mutation during higher order op", _body_mutates),
    ("torch.compiler.disable()", _eager_step),
    ("marked as skipped", _eager_step),
    ("marked as skipped", _rng),
    ("Failed to trace builtin operator", _class_attribute),
    ("ContextVar mutation", _context_variable),
    ("Unsupported method call", _context_variable),
    ("torch.nn.Parameter()", _parameter),
)
