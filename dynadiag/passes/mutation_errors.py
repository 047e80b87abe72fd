"""Mutations that are refused: by AOTAutograd (the frame runs eager, or the program gets the error) and by autograd itself.

The texts are those of torch/_functorch/_aot_autograd (2.11 and 2.15) and of the autograd engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import frames_by_process, problems_by_frame, traced_by_frame
from dynadiag.facts.user_frames import of_last_run, own_frame
from dynadiag.model import codes
from dynadiag.model.graph import Node
from dynadiag.model.location import Location
from dynadiag.model.run import Frame, Problem, Run
from dynadiag.passes.mutation_breaks import local_source
from dynadiag.passes.mutation_facts import Effect, Fact, Site, WrittenInput, site_of
from dynadiag.passes.mutation_graphs import GraphView
from dynadiag.source.line import dotted
from dynadiag.source.place import line_at
from dynadiag.source.torch_names import has_in_place_name
from dynadiag.source.writes import written_tensor

_TAKEN = "once AOTAutograd takes the graph"
_LEAF = "a leaf Variable that requires grad is being used in an in-place operation"
_VIEW_OF_LEAF = "a view of a leaf Variable that requires grad is being used in an in-place operation"
_SAVED = "modified by an inplace operation"
_INFERENCE = "Inplace update to inference tensor outside InferenceMode"
_OVERLAP = "refers to a single memory location"
# AOTAutograd refuses writes of its backward graph: `graph_capture_wrappers.py` while it compiles, `runtime_wrappers.py` at the call (2.15).
_IN_BACKWARD = re.compile(
    r"input mutations with requires_grad in backward for create_graph=True|a backward input that had data mutated in an autograd-aware way"
    r"|metadata mutated (?:in the backward|during the backward pass)|storage resizing in the backward"
)
_SIZES = re.compile(r"\[torch\.[\w.]{1,40} \[([\d, ]{0,200})\]\]")
_EAGER_FAILS = (_SAVED, _INFERENCE, _OVERLAP, _LEAF, _VIEW_OF_LEAF)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What AOTAutograd says when it refuses a graph because of a mutation, and which inputs it means."""

    words: str
    picks: str


REFUSALS = (
    Refusal("does not yet handle input mutations on views with different dtypes", "aliased"),
    Refusal("Encountered aliased inputs that are mutated in the graph", "aliased"),
    Refusal("on a graph input, but the input has other mutations that we cannot", "storage"),
    Refusal("mutat", "all"),
    Refusal("synthetic base", "aliased"),
    Refusal("set_(", "storage"),
)


def refusal_of(view: GraphView, run: Run) -> Problem | None:
    """The record of AOTAutograd refusing this graph, or None."""
    same = (problem for problem in problems_by_frame(run).get(view.frame.id, ()) if problem.kind == "aot_rejected")
    return next(same, None) if view.frame.outcome in ("failed", "skipped") else None


def refused(facts: Sequence[Fact], problem: Problem, view: GraphView, run: Run) -> Iterator[Fact]:
    """The facts of a refused graph: those that the refusal means get its effect and words, the others only what would hold without it."""
    text = said_by(problem)
    means = next((refusal for refusal in REFUSALS if refusal.words in text), None)
    if means is None or any(words in text for words in _EAGER_FAILS):
        yield from _eager_fails(facts, text, view, run)
        return
    blamed = [fact for fact in facts if _is_meant(fact, means)] or list(facts)
    for fact in facts:
        later = tuple(_once_taken(effect) for effect in fact.effects)
        if any(fact is item for item in blamed):
            doubts = () if len(blamed) == 1 or means.picks != "all" else ("AOTAutograd does not say which of these inputs it means",)
            effects = (*_refusal_effects(view.frame, text), *later)
            yield replace(
                fact, code=codes.AOT_REFUSED_WRITE, effects=effects, refusal=text, where="rejected", doubts=(*fact.doubts, *doubts)
            )
        else:
            yield replace(fact, effects=later)


def _once_taken(effect: Effect) -> Effect:
    """The effect of a write in a graph that was never compiled."""
    condition = _TAKEN if effect.condition is None else f"{_TAKEN}, and {effect.condition}"
    return replace(effect, basis="predicted", condition=condition)


def _is_meant(fact: Fact, refusal: Refusal) -> bool:
    if refusal.picks == "aliased":
        return bool(fact.given.overlaps or fact.given.aliases)
    return fact.kind in ("storage", "metadata") if refusal.picks == "storage" else True


def _refusal_effects(frame: Frame, text: str) -> Iterator[Effect]:
    first = text.strip().splitlines()[0] if text.strip() else "no reason recorded"
    if frame.outcome == "skipped":
        yield Effect("eager_fallback", "observed", f"AOTAutograd refused the graph and the frame ran eagerly: {first}")
        return
    yield Effect("error", "observed", f"AOTAutograd refused the graph and the program got the error: {first}")
    yield Effect("eager_fallback", "predicted", "with torch._dynamo.config.suppress_errors = True the frame would run eagerly instead")


def _eager_fails(facts: Sequence[Fact], text: str, view: GraphView, run: Run) -> Iterator[Fact]:
    """Autograd refuses the write itself, also without torch.compile: blame the inputs, or the writes on tensors made in the graph."""
    if not any(words in text for words in _EAGER_FAILS):
        yield from facts
        return
    when = " when gradients are computed" if _SAVED in text else ""  # torch.compile computes them ahead, eager perhaps never
    effect = Effect("error", "observed", f"autograd refuses this{when}, also without torch.compile: {text.strip().splitlines()[0]}")
    if facts and _SAVED not in text:
        for fact in facts:
            yield replace(fact, code=codes.AUTOGRAD_REFUSED_WRITE, effects=(effect,), refusal=text)
        return
    yield from facts
    yield from _inner_writes(view, effect, text, run)


def _inner_writes(view: GraphView, effect: Effect, text: str, run: Run) -> Iterator[Fact]:
    writes = view.inner_writes
    for node in writes:
        site = site_of(view.frame, view.stack_of(node), node.target, run)
        yield Fact(
            code=codes.AUTOGRAD_REFUSED_WRITE,
            frame=view.frame,
            graph=view.graph.id,
            input=made_inside(site, node, run),
            kind="data",
            effects=(effect,),
            sites=(site,),
            refusal=text,
            doubts=("autograd names no tensor: each in-place write on a tensor that the graph makes is listed",) if len(writes) > 1 else (),
            unknown=dict.fromkeys(("bytes_touched", "bytes_written_back", "no_grad", "static", "where"), "the graph was refused"),
        )


def made_inside(site: Site, node: Node, run: Run) -> str:
    """How the input of a mutation is named where the graph made the tensor that the node writes."""
    return f"{_inner_name(site, node.args[0] if node.args else node.name, run)} (made in the compiled code)"


def _inner_name(site: Site, fallback: str, run: Run) -> str:
    """The variable in front of the in-place method on the user's line, or the first argument of the only call, as written there."""
    line = line_at(site.where, run)
    method = (site.op or "").rpartition(".")[2]
    call = next(line.methods(method), None) if method.isidentifier() else None
    written = written_tensor(call) if call is not None else None
    if written is not None:
        return line.text(written)
    only = line.only_call()
    first = dotted(only.args[0]) if only is not None and only.args and not has_in_place_name(method) else None
    return first or fallback


def said_by(problem: Problem) -> str:
    """AOTAutograd's own words, without Dynamo's frame around them."""
    text = re.sub(r"^BackendCompilerFailed: backend='[^']*' raised:\n", "", problem.text)
    return text.partition("\n\nSet TORCHDYNAMO_VERBOSE")[0].strip()


def leaf_facts(run: Run) -> Iterator[Fact]:
    """In-place writes on a leaf that requires grad, which fail while Dynamo traces (eager fails too)."""
    for frame in run.frames:
        text = (frame.metrics.fail_reason if frame.metrics is not None else None) or frame.error or ""
        if frame.outcome == "failed" and (_LEAF in text or _VIEW_OF_LEAF in text):
            yield _leaf(frame, text, run)


def _leaf(frame: Frame, text: str, run: Run) -> Fact:
    problem = next((item for item in problems_by_frame(run).get(frame.id, ()) if item.stack), None)
    stack = problem.stack if problem is not None else ()
    own = own_frame(stack, run) or (problem.location if problem is not None else None)
    match = re.search(r"call_(?:method|function) ([\w.]+)", text)
    op = match[1] if match else None
    name = _inner_name(Site(own, op), "", run)
    effect = Effect("error", "observed", "autograd refuses an in-place write on a leaf that requires grad, also without torch.compile")
    return Fact(
        code=codes.LEAF_WRITTEN,
        frame=frame,
        input=local_source(name, own, frame) if name else "a leaf that requires grad",
        kind="data",
        effects=(effect,),
        sites=(Site(own, op),) if own is not None else (),
        given=WrittenInput(requires_grad=True),
        refusal=next((line.strip() for line in text.splitlines() if _LEAF in line or _VIEW_OF_LEAF in line), _LEAF),
        unknown=dict.fromkeys(("bytes_touched", "bytes_written_back", "no_grad", "static", "where"), "Dynamo stopped at this write"),
    )


def uncaught_effect(fact: Fact, run: Run) -> Fact:
    """The fact with the error that ended the program, when the compiled code wrote a tensor made in inference mode."""
    if fact.kind != "data" or fact.given.requires_grad:
        return fact
    problem = _ended_in_inference(run).get(fact.frame.id)
    return fact if problem is None else replace(fact, code=codes.AUTOGRAD_REFUSED_WRITE, effects=(_ended(problem),), refusal=problem.text)


@of_last_run
def _ended_in_inference(run: Run) -> Mapping[str, Problem]:
    """By frame the first exception about a tensor of inference mode that ended the program in it."""
    found: dict[str, Problem] = {}
    for problem in run.problems:
        frame = _frame_of(problem, run) if problem.kind == "uncaught" and _INFERENCE in problem.text else None
        if frame is not None:
            found.setdefault(frame.id, problem)
    return found


def _ended(problem: Problem) -> Effect:
    return Effect("error", "observed", f"the program ended with: {problem.text.strip().splitlines()[0]}")


def is_write_in_backward(text: str) -> bool:
    """Whether AOTAutograd says that a backward graph writes something that it must not."""
    return _IN_BACKWARD.search(text) is not None


def failed_by_new_sizes(fact: Fact) -> Fact:
    """The fact with the error that it causes: an input that gets another number of dimensions while it is traced.

    `produce_guards_verbose` (torch/fx/experimental/symbolic_shapes.py, 2.11 to 2.15) pairs the sizes that the input has by then with those
    that it came with and ends in an IndexError. Methods (`x.unsqueeze_(0)`) break the graph before that; functions (`torch.as_strided_(x,
    ...)`) do not.
    """
    metrics = fact.frame.metrics
    kind = None if metrics is None else metrics.fail_type
    if fact.kind != "metadata" or fact.frame.outcome != "failed" or kind != "IndexError":
        return fact
    line = next((site.where.code for site in fact.sites if site.where is not None and site.where.code), None)
    what = f"`{line}`" if line else "this write"
    detail = (
        f"{what} changes the sizes of an input while the function is traced, and the compilation failed: {kind}: {_first_line(fact.frame)}"
    )
    return replace(fact, effects=(Effect("error", "derived", detail),), doubts=(*fact.doubts, "torch's own error names no line"))


def _first_line(frame: Frame) -> str:
    said = (frame.metrics.fail_reason if frame.metrics is not None else None) or frame.error or ""
    return said.strip().partition("\n")[0][:200]


def _backward_facts(run: Run) -> Iterator[Fact]:
    """A write of the backward graph that ended the program: under `create_graph=True` autograd would have to see it."""
    for problem in run.problems:
        frame = _frame_of(problem, run) if problem.kind == "uncaught" and is_write_in_backward(problem.text) else None
        if frame is not None:
            own = own_frame(problem.stack, run)
            effect = Effect("error", "observed", f"{_ended(problem).detail}; eager may accept this write: compiled code does not")
            yield Fact(
                code=codes.AOT_REFUSED_WRITE,
                frame=frame,
                input="a tensor that the backward writes in place",
                kind="data",
                effects=(effect,),
                sites=(Site(own, None),) if own is not None else (),
                refusal=problem.text,
                where="rejected",
                doubts=("the line is the one that ran the backward; AOTAutograd does not name the line that writes",),
                unknown=dict.fromkeys(("bytes_touched", "bytes_written_back", "no_grad", "static"), "AOTAutograd does not say"),
            )


def uncaught_facts(run: Run, facts: Sequence[Fact]) -> Iterator[Fact]:
    """The exception that ended the program when autograd refused a mutation at run time, unless an input was blamed for it."""
    yield from _backward_facts(run)
    blamed = {fact.refusal for fact in facts}
    for problem in run.problems:
        told = problem.text in blamed or said_by(problem) in blamed
        if problem.kind == "uncaught" and not told and any(words in problem.text for words in (_SAVED, _INFERENCE)):
            frame = _frame_of(problem, run)
            if frame is not None:
                yield _uncaught(problem, frame, _guilty(problem, facts, run), run)


def _frame_of(problem: Problem, run: Run) -> Frame | None:
    """The last compiled frame whose code is on the stack of the exception, else the last compiled one of the process."""
    last = _last_frames(run)
    process = problem.process
    on_stack = [at for place in problem.stack if (at := last.get((process, place.file, place.function))) is not None]
    return run.frames[max(on_stack)] if on_stack else next(iter(frames_by_process(run).get(process, ())[-1:]), None)


@of_last_run
def _last_frames(run: Run) -> Mapping[tuple[int, str | None, str | None], int]:
    """By process, file and name the position of the last such frame."""
    return {(frame.key.process, frame.file, frame.name): position for position, frame in enumerate(run.frames)}


def _guilty(problem: Problem, facts: Sequence[Fact], run: Run) -> tuple[Fact, Site] | None:
    """The one recorded write of an input with the sizes that autograd names, or None; inside a graph nothing gets another version."""
    named = _SIZES.search(problem.text) if _SAVED in problem.text else None
    if named is None:
        return None
    sizes = tuple(int(size) for size in re.findall(r"\d+", named[1]))
    known = traced_by_frame(run)
    writes = [
        fact
        for fact in facts
        if fact.frame.key.process == problem.process
        and any(traced_input.source == fact.input and traced_input.shape == sizes for traced_input in known.get(fact.frame.id, ()))
    ]
    found = {(site.where.file, site.where.line): (fact, site) for fact in writes for site in fact.sites if site.where is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _uncaught(problem: Problem, frame: Frame, guilty: tuple[Fact, Site] | None, run: Run) -> Fact:
    own: Location | None = own_frame(problem.stack, run)
    doubt = "the line is where the program failed; autograd does not name the line that wrote"
    if guilty is not None:
        own = guilty[1].where
        name = readable(guilty[0].input)
        doubt = f"autograd does not name the write; this is the only one recorded of an input with these sizes ({name})"
    what = "a tensor that autograd saved for the backward" if _SAVED in problem.text else "a tensor made in inference mode"
    return Fact(
        code=codes.AUTOGRAD_REFUSED_WRITE,
        frame=frame,
        input=what,
        kind="data",
        effects=(_ended(problem),),
        sites=(Site(own, None),) if own is not None else (),
        refusal=problem.text,
        doubts=(doubt,),
        unknown=dict.fromkeys(("bytes_touched", "bytes_written_back", "no_grad", "static", "where"), "autograd does not say"),
    )
