"""The guards of each compiled frame: how many, what one check of all costs, which sources are unusual, which failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dynadiag.facts.fingerprint import Subject, fingerprints
from dynadiag.facts.guard_sources import readable
from dynadiag.facts.lookups import costs_of, frames_by_code, process_of
from dynadiag.facts.user_frames import entry_stack, of_last_run, own_frame, source_function
from dynadiag.facts.wording import frame_location, listed, short_place, unique
from dynadiag.model import codes
from dynadiag.model.clauses import Cause, Effect, Happened
from dynadiag.model.report import Advice, Cost, Finding, GuardReport, PassResult
from dynadiag.model.run import Frame, Guard, Run
from dynadiag.passes.base import Priority
from dynadiag.passes.guard_text import parse_reason

# torch times one single check while it compiles, with the CPU caches flushed before it (`CheckFunctionManager`, `_dynamo/guards.py`): an
# upper bound that says nothing of a call. So a finding needs the look-ups of `--cost`, and enough guards to explain them: a call of a few
# microseconds has its share of look-up with three guards too.
LEAST_SHARE = 0.05
MANY_GUARDS = 200
_FILTER = "skip_guard_on_inbuilt_nn_modules_unsafe"
_LONG_CHAIN = 6
_EXAMPLES = 5
_PLUMBING = ("torch._functorch", "torch.utils._device", "___check_global_state", "___check_torch_function_mode_stack", "utils_device.")
# Functions, classes and modules that a program refers to are globals too, and checked by identity; only changing values are unusual.
_GLOBAL_VALUES = frozenset({"EQUALS_MATCH", "TENSOR_MATCH", "TRUE_MATCH", "FALSE_MATCH", "LENGTH_CHECK", "DICT_LENGTH", "DICT_CONTAINS"})
_CLOSURE = re.compile(r"\.__closure__\[|\.cell_contents|__defaults__|__kwdefaults__")


def find_guards(run: Run) -> PassResult:
    """One entry for each compiled frame with guards, and a finding for each code object whose look-ups cost a share of the calls.

    The latency is torch's measurement of one check at compile time (`guard_latency_us`). torch does not time single guards: `dearest`
    are those with the longest way to their value among the recorded examples, because a check walks that way.
    """
    failed = _failed(run)
    reports = tuple(
        _report(number, frame, failed.get((frame.key.process, frame.key.epoch, frame.key.text), ()))
        for number, frame in enumerate((frame for frame in run.frames if frame.guards is not None), start=1)
    )
    return PassResult(guards=reports, findings=_findings(run, {report.frame: report for report in reports}))


def _failed(run: Run) -> dict[tuple[int, int, str], tuple[str, ...]]:
    """The failed guards by the cache entry that they belong to, each once, without torch's stack."""
    found: dict[tuple[int, int, str], dict[str, None]] = {}
    for event in run.recompiles:
        frame = run.frame(event.frame)
        for reason in () if frame is None else event.reasons:
            guard = parse_reason(reason)
            if frame is not None and guard.entry is not None:
                found.setdefault((frame.key.process, frame.key.epoch, guard.entry), {})[guard.text] = None
    return {key: tuple(texts) for key, texts in found.items()}


def _report(number: int, frame: Frame, failed: tuple[str, ...]) -> GuardReport:
    guards = frame.guards
    examples = () if guards is None else tuple(dict.fromkeys((*guards.examples, *guards.watched)))
    return GuardReport(
        id=f"c{number}",
        frame=frame.id,
        count=_count(frame),
        by_kind={} if guards is None else guards.by_kind,
        latency_us=None if frame.metrics is None else frame.metrics.guard_latency_us,
        dearest=longest_chains(examples),
        odd=tuple(guard for guard in examples if oddity(guard) is not None)[:_EXAMPLES],
        failed=failed,
    )


def _count(frame: Frame) -> int:
    """The leaves of the guard tree: what a check evaluates. (`guard_count` of torch's metrics counts sources with a guard.)"""
    return 0 if frame.guards is None else frame.guards.count


_STEP = re.compile(r"\.\w+|\[[^\]]*\]")
_SCOPE = re.compile(r"^[LG]\[[^\]]*\]")


def chain_length(source: str) -> int:
    """The steps from the frame to the guarded value: 3 for `L['self']._modules['lin'].weight`."""
    return len(_STEP.findall(_SCOPE.sub("", source)))


def longest_chains(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """The guards with the longest way to their value, longest first."""
    reached = [guard for guard in guards if chain_length(guard.source) > 0]
    return tuple(sorted(reached, key=lambda guard: -chain_length(guard.source))[:_EXAMPLES])


def oddity(guard: Guard) -> str | None:
    """Why a guard is worth a look, or None: object identity, a global, a closure or default value, the default device, a long way."""
    if guard.code.startswith("utils_device.CURRENT_DEVICE ==") and not guard.code.rstrip().endswith("None"):
        return "a default device is set"
    if guard.code.startswith(_PLUMBING) or guard.source.endswith(".__code__"):
        return None  # every function that a program calls is checked by the identity of its code
    if _CLOSURE.search(guard.source):
        return "a closure or default value"
    if guard.source.startswith("G["):
        return "a global variable" if guard.kind in _GLOBAL_VALUES else None
    if guard.code.startswith("___check_obj_id("):
        return "the identity of an object"
    return "a long access path to the value" if chain_length(guard.source) >= _LONG_CHAIN else None


@dataclass(frozen=True, slots=True)
class _Measured:
    """A compilation with many guards, and what the look-ups of its code took: a mean per call, and their share of the profiled calls."""

    frame: Frame
    lookup_us: float
    share: float
    how: str


def _findings(run: Run, reports: dict[str, GuardReport]) -> tuple[Finding, ...]:
    slow = [item for frames in frames_by_code(run).values() if (item := _measured(frames, run)) is not None and item.share >= LEAST_SHARE]
    marks = fingerprints([Subject(codes.SLOW_GUARDS, own_frame(entry_stack(element.frame), run)) for element in slow], run)
    return tuple(_finding(number, entry, reports, mark, run) for number, (entry, mark) in enumerate(zip(slow, marks, strict=True), start=1))


def _measured(frames: Sequence[Frame], run: Run) -> _Measured | None:
    """What `--cost` measured of the look-ups of one code object, at its compilation with most guards; None where nothing was."""
    frame = max((frame for frame in frames if _count(frame) >= MANY_GUARDS), key=_count, default=None)
    mine = [(cost, cost.lookup_us) for cost in costs_of((frame.id for frame in frames), run) if cost.lookup_us is not None]
    if frame is None or not mine:
        return None
    spent, calls = sum(cost.calls * lookup for cost, lookup in mine), sum(cost.calls for cost, _ in mine)
    whole = _profiled_us(run).get(frame.key.process, 0.0)
    return _Measured(frame, spent / calls, spent / whole, mine[0][0].how) if calls and whole > 0 else None


@of_last_run
def _profiled_us(run: Run) -> Mapping[int, float]:
    """The time of each process's profiled calls: of compiled calls with their look-ups, or of its steps where those took longer."""
    compiled: dict[int, float] = {}
    steps: dict[int, float] = {}
    for cost in run.costs:
        compiled[cost.process] = compiled.get(cost.process, 0.0) + cost.calls * (cost.region_us + (cost.lookup_us or 0.0))
        steps[cost.process] = max(steps.get(cost.process, 0.0), cost.step_us or 0.0)
    return {process: max(spent, steps[process]) for process, spent in compiled.items()}


def _finding(number: int, element: _Measured, reports: dict[str, GuardReport], mark: str, run: Run) -> Finding:
    frame = element.frame
    report = reports[frame.id]
    kinds = sorted(report.by_kind.items(), key=lambda item: (-item[1], item[0]))
    odd = unique(f"`{readable(guard.source)}` ({oddity(guard)})" for guard in report.odd if guard.source)
    process = process_of(run, frame.key.process)
    on_device = process is not None and process.device not in (None, "cpu")
    name = source_function(frame.name) or "a frame"
    return Finding(
        id=f"n{number}",
        fingerprint=mark,
        code=codes.SLOW_GUARDS,
        severity=codes.severity_of(codes.SLOW_GUARDS),
        title=f"Guards of `{name}`: looking up the compiled code takes {element.share:.0%} of the measured calls' time",
        where=own_frame(entry_stack(frame), run),
        clauses=(
            Happened(
                f"Its {report.count:,} guards run before each call of the compiled code {_compiled_place(frame)}; a lookup took "
                f"{element.lookup_us:,.0f} us"
            ),
            *((Effect("This is host time: while the device is busy, it may cost nothing"),) if on_device else ()),
            Cause(f"Most are {listed([f'{kind} ({count})' for kind, count in kinds])}"),
            *((Cause(f"Unusual: {listed(odd)}"),) if odd else ()),
        ),
        fix=_advice(frame, run),
        cost=Cost(value=round(element.lookup_us, 3), unit="us per call", basis="measured", remark=element.how),
        evidence=(report.id, frame.id),
        rank=(float(Priority.GUARDS), -element.share),
    )


def _compiled_place(frame: Frame) -> str:
    return f"[{frame.key.text}] {short_place(frame_location(frame))}"


def _advice(frame: Frame, run: Run) -> tuple[Advice, ...]:
    text = (
        "Guards depend on what the compiled code reads. Pass plain tensors instead of large dictionaries and configuration objects, "
        "and read what never changes before the compiled call."
    )
    return (*_filter(frame, run), Advice(slug="fewer-guards", text=text))


def _filter(frame: Frame, run: Run) -> tuple[Advice, ...]:
    """Torch's own filter, where at least half of the counted guards look at modules: those on torch's classes are what it drops.

    Counted for a BERT of two layers (transformers 5.23): 445 guards become 281 on torch 2.11, 713 become 354 on 2.15, with equal results.
    """
    guards, process = frame.guards, process_of(run, frame.key.process)
    names = None if process is None else process.option_names.get("compiler")
    if guards is None or guards.on_modules * 2 < guards.count or (names is not None and _FILTER not in names):
        return ()
    text = (
        f"{guards.on_modules:,} of the {guards.count:,} guards look at submodules. If the program never changes torch's own modules "
        "(such as `nn.Linear`) after the first call, drop their guards. Unsafe: torch then does not notice when a parameter, an "
        "attribute or a flag of such a module changes, and runs the old code"
    )
    doubt = "" if names is not None else " (if your torch has this option)"
    after = f'torch.compile(..., options={{"guard_filter_fn": torch.compiler.{_FILTER}}})'
    return (Advice(slug="guard-filter", text=f"{text}{doubt}.", after=after, options=(f"torch.compiler.{_FILTER}",)),)
