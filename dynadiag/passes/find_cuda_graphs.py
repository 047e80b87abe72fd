"""CUDA graphs: graphs that got none, parts that run outside of theirs, recordings made again, and sizes for which there was none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dynadiag.advice.cuda_graphs import SIZES_THAT_REPEAT, partition_advice, rerecord_advice, skip_advice
from dynadiag.facts.cuda_graphs import is_skip_for_writes, recorded_as_cuda_graphs, skipped_for_writes
from dynadiag.facts.fingerprint import Subject, fingerprint
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import is_from_text, traced_by_frame
from dynadiag.facts.user_frames import of_last_run, own_entry, own_frame
from dynadiag.facts.wording import excerpt, frame_text, listed, plural, times, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Cause, Clause, Effect, Happened, Quoted
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Cost, Finding, PassResult
from dynadiag.model.run import Frame, Problem, Run
from dynadiag.model.sentences import capital
from dynadiag.passes.base import Priority
from dynadiag.trace.stacks import printed_stack

_PARTS = re.compile(r"partition \d+ of (?P<parts>\d+) is no CUDA graph \((?P<kept>\d+) are\): (?P<why>.*)", re.DOTALL)
_WARNED = re.compile(r"torch warned of (?P<count>\d{1,9}) sizes$")
_COUNT = re.compile(r"recorded (?P<count>\d{1,6}) times: (?P<why>.*)", re.DOTALL)
_SIZES = re.compile(r"met (?P<count>\d{1,6}) sizes: ")
_ANOTHER_SIZE = "another size"
_AT_MOST = 200  # of one graph, as the recorder writes them (`cudagraph_skips.MOST_RECORDINGS`)
_ADDRESSES = re.compile(r"(?:\s*input name: \w+\.)? data pointer changed from (?:\d+|None) to \d+\.")
_FOUND_FROM = re.compile(r"\.? ?(?:Found from ?:|input stack trace:)")
_PLUMBING = ("getitem", "AssertScalar")
_CPU = ("cpu", "device(type='cpu')")
_NUMBER = re.compile(r"___as_tensor\((.+)\)")
_LONGEST = 300
_UNITS = {codes.CUDA_GRAPH_AGAIN: "recordings"}


def find_cuda_graphs(run: Run) -> PassResult:
    """What torch said about CUDA graphs; graphs that were skipped because they write an input are told as mutations."""
    groups: dict[tuple[object, ...], list[Problem]] = {}
    for problem in (*run.problems, *_told_while_compiling(run)):
        if (key := _key(problem, run)) is not None:
            groups.setdefault(key, []).append(problem)
    return PassResult(findings=tuple(_FINDINGS[str(key[0])](group, run) for key, group in groups.items()))


def _told_while_compiling(run: Run) -> Iterator[Problem]:
    """Skips that only the metrics tell: a log without our records, torch's code cache."""
    recorded = {problem.frame for problem in run.problems if problem.kind == "cudagraph_skip"}
    for frame in run.frames:
        reason = None if frame.metrics is None else frame.metrics.cudagraph_skip_reason
        if reason and frame.id not in recorded:
            yield Problem(kind="cudagraph_skip", process=frame.key.process, text=reason, frame=frame.id)


def _key(problem: Problem, run: Run) -> tuple[object, ...] | None:
    """What makes records one finding: the kind, the line, and the reason without numbers that differ from call to call."""
    where = _where(problem, run)
    place = None if where is None else (where.file, where.line)
    if problem.kind == "cudagraph_skip":
        told = is_skip_for_writes(problem.kind, problem.text) and not is_from_text(run)  # as a mutation, which a text does not show
        return None if told else (codes.CUDA_GRAPH_SKIPPED, place, _first(problem.text))
    if problem.kind == "cudagraph_partition" and _PARTS.match(problem.text):
        return (codes.CUDA_GRAPH_CUT, place, tuple(reason for reason, _ in _operators(problem))) if _operators(problem) else None
    if problem.kind == "cudagraph_rerecord" and (match := _COUNT.match(problem.text)):
        if not match["why"].startswith(_ANOTHER_SIZE):
            return codes.CUDA_GRAPH_AGAIN, place, _first(match["why"])
        # Older recorders wrote it for each size that was met, recorded or not; those of today write the first recording of a graph too.
        return (codes.CUDA_GRAPH_AGAIN, place, _ANOTHER_SIZE) if problem.process in _tells_recordings(run) else None
    if problem.kind == "cudagraph_sizes" and _SIZES.match(problem.text):
        done = problem.frame in recorded_as_cuda_graphs(run) or problem.frame in skipped_for_writes(run)
        return None if done or problem.frame is None else (codes.CUDA_GRAPH_NEVER, place)
    if problem.kind == "cudagraph_warned" and _WARNED.match(problem.text):
        return codes.CUDA_GRAPH_AGAIN, place, problem.text
    return None


@of_last_run
def _tells_recordings(run: Run) -> frozenset[int]:
    """The processes whose recorder wrote down the first recordings of CUDA graphs."""
    return frozenset(problem.process for problem in run.problems if problem.kind == "cudagraph_recorded")


def _first(text: str) -> str:
    said = _FOUND_FROM.split(_ADDRESSES.sub("", text), maxsplit=1)[0]
    return excerpt(said.rstrip(". \n"), _LONGEST)


def _where(problem: Problem, run: Run) -> Location | None:
    frame = run.frame(problem.frame) if problem.frame else None
    if problem.kind == "cudagraph_sizes":  # of many, only the first has a stack
        return None if frame is None else own_entry(frame, run)
    printed = _FOUND_FROM.split(problem.text)[1:]
    found = own_frame(printed_stack(printed[-1].split("\n")), run) if printed else None
    return found or own_frame(problem.stack, run) or (None if frame is None else own_entry(frame, run))


def _operators(problem: Problem) -> list[tuple[str, str]]:
    """(reason, operator) of each node of a part that says something: ("cpu ops", "aten.mul.Tensor")."""
    match = _PARTS.match(problem.text)
    pairs = [entry.partition(": ")[::2] for entry in (match["why"] if match else "").split("; ")]
    return [(reason, operator) for reason, operator in pairs if not any(name in operator for name in _PLUMBING)]


def _made(
    code: str, title: str, where: Location | None, clauses: tuple[Clause, ...], fix: tuple[Advice, ...], group: Sequence[Problem], run: Run
) -> Finding:
    return Finding(
        id="",
        fingerprint=fingerprint(Subject(code, where, title.partition(":")[0]), run),
        code=code,
        severity=codes.severity_of(code),
        title=title,
        where=where,
        clauses=clauses,
        fix=fix,
        cost=Cost(value=float(len(_unit(code, group))), unit=_UNITS.get(code, "graphs"), basis="counted"),
        evidence=unique(problem.frame for problem in group if problem.frame)[:20],
        rank=(float(Priority.REMARK if codes.severity_of(code) == "note" else Priority.RECOMPILED), 0.0, -float(len(group))),
    )


def _unit(code: str, group: Sequence[Problem]) -> Sequence[object]:
    """What a finding counts: recordings, or graphs; of those that were met with many sizes each once."""
    return unique(str(problem.frame) for problem in group) if code == codes.CUDA_GRAPH_NEVER else group


def _skipped(group: Sequence[Problem], run: Run) -> Finding:
    reason = _first(group[0].text)
    short = reason.removeprefix("skipping cudagraphs due to ").removeprefix("skipping cudagraph due to ")
    frames = _frames(group, run)
    clauses = (Quoted(reason, by="torch"), Effect(f"{capital(frames)} ran kernel by kernel, without a CUDA graph"))
    return _made(
        codes.CUDA_GRAPH_SKIPPED, f"CUDA graphs were skipped: {short}", _where(group[0], run), clauses, skip_advice(reason), group, run
    )


def _partition(group: Sequence[Problem], run: Run) -> Finding:
    first = group[0]
    match, operators = _PARTS.match(first.text), _operators(first)
    assert match is not None
    names = unique(operator.removesuffix(" (compiled)").removesuffix(".default") for _, operator in operators)
    reasons = unique(reason for reason, _ in operators)
    on_cpu = _on_cpu(first, run) if any("cpu" in word or "evice" in word for word in reasons) else ()
    parts, kept = int(match["parts"]), int(match["kept"])
    outside = [f"{name} ({reason})" for name, reason in zip(names, _each(operators, names), strict=True)]
    on_host = any(operator.endswith("(compiled)") and reason == "cpu ops" for reason, operator in operators)
    clauses = (
        Happened(f"Inductor partitioned {_frames(group, run)} into {plural(parts, 'part')}, of which {kept} can be a CUDA graph"),
        Effect(f"These run outside CUDA graphs: {listed(outside, limit=4)}"),
        *((Cause(f"On the CPU: {listed(on_cpu, limit=4)}"),) if on_cpu else ()),
        *((Effect("Inductor generated C++ code for its CPU operators, which needs a C++ compiler"),) if on_host else ()),
    )
    title = f"Part of the graph runs outside its CUDA graph: {listed(reasons)}"
    return _made(codes.CUDA_GRAPH_CUT, title, _where(first, run), clauses, partition_advice(reasons, on_cpu, names), group, run)


def _each(operators: Sequence[tuple[str, str]], names: Sequence[str]) -> Iterator[str]:
    """The reason of each operator's first node."""
    for name in names:
        yield next(reason for reason, operator in operators if operator.removesuffix(" (compiled)").removesuffix(".default") == name)


def _on_cpu(problem: Problem, run: Run) -> tuple[str, ...]:
    """The inputs of the graph that lie on the CPU."""
    found = (traced_input.source for traced_input in traced_by_frame(run).get(problem.frame or "", ()) if traced_input.device in _CPU)
    return unique(f"{readable(number[1])} (a number)" if (number := _NUMBER.fullmatch(source)) else readable(source) for source in found)


def _again(group: Sequence[Problem], run: Run) -> Finding:
    if (warned := _WARNED.match(group[0].text)) is not None:
        met = f"torch has met {warned['count']} distinct sizes of an input"
        each = Effect("Each size that comes again gets a CUDA graph of its own, which takes time to record and keeps memory")
        return _made(
            codes.CUDA_GRAPH_AGAIN, f"CUDA graphs: {met}", None, (Happened(met), each), rerecord_advice("another size"), group, run
        )
    found = [match for problem in group if (match := _COUNT.match(problem.text))]
    reason = _first(found[-1]["why"])
    said = reason if reason.startswith(("another", "it follows")) else f"torch: {reason}"
    graphs = len({problem.frame for problem in group})
    first = "the first" if graphs == 1 else "the first of each graph"
    least = "at least " if any(int(match["count"]) >= _AT_MOST for match in found) else ""
    again = f"{least}{plural(len(group), 'more recording')} after {first}: {said}"
    clauses = (Happened(capital(again)), Effect("Each recording runs the kernels once and keeps memory"))
    title = f"CUDA graphs were re-recorded: {least}{times(len(group))}"
    return _made(codes.CUDA_GRAPH_AGAIN, title, _where(group[-1], run), clauses, rerecord_advice(reason), group, run)


def _never(group: Sequence[Problem], run: Run) -> Finding:
    counts: dict[str | None, int] = {}
    for problem in group:
        if match := _SIZES.match(problem.text):
            counts[problem.frame] = max(counts.get(problem.frame, 0), int(match["count"]))
    met = sum(counts.values())
    least = "at least " if max(counts.values()) >= _AT_MOST else ""
    clauses = (
        Happened(f"{_frames(group, run)} met {least}{met:,} sizes (or other numbers), and torch recorded a CUDA graph for none of them"),
        Cause("The first call with a size only warms up, the second one records"),
        Effect("So far they all ran kernel by kernel"),
    )
    title = f"No CUDA graph was recorded: {least}{met:,} sizes met"  # what stands before the colon names the finding
    return _made(codes.CUDA_GRAPH_NEVER, title, _where(group[0], run), clauses, (SIZES_THAT_REPEAT,), group, run)


def _frames(group: Sequence[Problem], run: Run) -> str:
    frames: list[Frame] = [frame for problem in group if problem.frame and (frame := run.frame(problem.frame)) is not None]
    return listed(unique(frame_text(frame) for frame in frames), limit=2) if frames else "the graph"


_FINDINGS = {
    codes.CUDA_GRAPH_SKIPPED: _skipped,
    codes.CUDA_GRAPH_CUT: _partition,
    codes.CUDA_GRAPH_AGAIN: _again,
    codes.CUDA_GRAPH_NEVER: _never,
}
