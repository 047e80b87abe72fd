"""What the step gives when nothing is compiled: twice, in float64, on other data, and on data that is off by roundings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dynadiag.bench.inside.results import Nudged, Reference, compare_all, layout_of, numbers_in, same_bits, tensors_in, why_vacuous
from dynadiag.bench.inside.steps import TimedStep
from dynadiag.capture.reach import Held, Snapshot, State, cuda_in_use, find_state, seed_generators, take_snapshot

if TYPE_CHECKING:
    from dynadiag.compare.judge import Judged


TF32_EPS = 2.0**-10
_SEED = 7
# What a changed fraction is multiplied by: few bits, so that nothing is rounded by more than its last place.
_SHARES = (0.75, 0.625, 0.875)


def floating(held: Mapping[str, Held]) -> list[Any]:
    """The floating tensors of the state, without scales and settings."""
    return [item.tensor for item in held.values() if item.kind not in ("scaler", "setting") and item.tensor.is_floating_point()]


def nudge(held: Mapping[str, Held], eps: float, seed: int = _SEED) -> None:
    """Multiply every value of the floating tensors by 1 plus at most half of `eps`, in place, at random. Scales and settings stay."""
    import torch

    from dynadiag.compare.noise import Generators, perturbed

    generators = Generators(seed)
    with torch.no_grad():
        for tensor in floating(held):
            if tensor.layout == torch.strided and tensor.numel():
                tensor.copy_(perturbed(tensor, eps / 2, generators))
    torch.clear_autocast_cache()


def change_inputs(held: Mapping[str, Held]) -> int:
    """Other data of the same kind, in place; how many tensors were changed.

    Inputs are rotated along their last axis. Then fractions shrink, each tensor's by another share, and of integers the last becomes the
    first (so that they stay in range): a plain rotation would leave every sum as it was, and one share for all every ratio. Integers in one
    dimension may be offsets that have to ascend: left. Of parameters and buffers every other element shrinks: what keeps those of its
    first call would else be right. Fractions in one dimension that ascend may be the edges of bins: they shrink and stay in order.
    """
    import torch

    changed = 0
    with torch.no_grad():
        for at, item in enumerate(held.values()):
            tensor, share = item.tensor, _SHARES[at % len(_SHARES)]
            if tensor.layout != torch.strided or not tensor.numel():
                continue
            if item.kind in ("input", "parameter", "buffer") and _ascends(tensor):
                tensor.mul_(share)
                changed += 1
            elif item.kind == "input":
                changed += _change_input(tensor, share)
            elif item.kind in ("parameter", "buffer") and tensor.is_floating_point():
                every_other = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape) % 2 == 0
                tensor.copy_(torch.where(every_other, tensor * share, tensor))
                changed += 1
    torch.clear_autocast_cache()
    return changed


def _ascends(tensor: Any) -> bool:
    return tensor.is_floating_point() and tensor.dim() == 1 and tensor.numel() > 2 and bool((tensor.diff() > 0).all())


def _change_input(tensor: Any, share: float) -> bool:
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return False
    rotated = tensor.roll(1, -1)
    if tensor.is_floating_point():
        tensor.copy_(rotated * share)
    elif tensor.dim() > 1:
        rotated[..., -1] = rotated[..., 0]
        tensor.copy_(rotated)
    else:
        return False
    return True


# With random numbers in the step, float64 is a truth only where it drew the same ones.
_SAME_DRAWS = 1e-2
_LARGE_BYTES = 256 << 20
# What a value that would be wrong is compared with once more: so many runs from a state that is a bit off, and so many from the same
# state, all with errors in their sums.
_NUDGES, _SAME = 6, 2
_OTHER_SEED = 977
# A loss scale begins at 2^16 and is halved by each step that is skipped: after so many it is below 1.
_MOST_SKIPPED = 20


@dataclass(kw_only=True)
class Expected:
    """The references on the recorded data and on changed data (None when that raised), where to start from, and what was done for it.

    `random` names the results that differ in eager when generators are in other states.
    """

    snapshot: Snapshot
    recorded: Reference
    changed: Reference | None
    eager_differences: list[Judged]
    vacuous: str
    draws: bool
    dropouts: list[tuple[Any, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    random: frozenset[str] = frozenset()

    @contextmanager
    def without_dropout(self) -> Iterator[None]:
        """The check's own setting: dropout probabilities at 0, so that eager, float64 and compiled runs see the same masks."""
        before = [module.p for module, _ in self.dropouts]
        for module, _ in self.dropouts:
            module.p = 0.0
        try:
            yield
        finally:
            for (module, _), probability in zip(self.dropouts, before, strict=True):
                module.p = probability


def run_and_collect(step: TimedStep, function: Callable[..., Any] | None = None) -> dict[str, Any]:
    """One step; its outputs, and after it every tensor, gradient and number that it could have changed, as copies by name."""
    return collect(step, step.run_step(function))


def collect(step: TimedStep, output: Any) -> dict[str, Any]:
    """The outputs of a step that has just run, and what it could have changed, as copies by name."""
    import torch

    state = find_state(step.original, step.arguments, step.keywords)
    found = tensors_in("output", output)
    layout = layout_of(found, [held.tensor for held in state.held.values()])
    found.update({name: held.tensor for name, held in state.held.items()})
    found.update({f"gradient of {name}": gradient for name, gradient in state.gradients().items()})
    # A sparse gradient (`nn.Embedding(sparse=True)`) is compared by its values: in what order its rows come is no result.
    found = {name: value.detach().to_dense() if value.is_sparse else value for name, value in found.items()}
    values = {**_copies(found), **layout}
    numbers = {**numbers_in("output", output), **state.numbers()}
    values.update({name: torch.tensor(number, dtype=torch.float64) for name, number in numbers.items() if name not in values})
    return values


def _copies(found: Mapping[str, Any]) -> dict[str, Any]:
    """Copies on the same device, or on the CPU when they are large: a check holds about ten sets of them."""
    size = sum(value.numel() * value.element_size() for value in found.values())
    if size > _LARGE_BYTES:
        return {name: value.detach().to("cpu", copy=True) for name, value in found.items()}
    return {name: value.detach().clone() for name, value in found.items()}


def eager_stance(eager_arm: bool) -> AbstractContextManager[Any]:
    """Everything that is compiled runs uncompiled while this is entered; nothing to do in an arm that compiles nothing."""
    import torch

    return nullcontext() if eager_arm else torch.compiler.set_stance("force_eager")


def prime_and_expect(step: TimedStep, *, eager_arm: bool, change: Callable[[State], None] = lambda _state: None) -> Expected:
    """The references. The first eager step also lets optimizers make their state, so that every later run starts alike; a call that was
    taken over from a running script has had that, and begins from the state in which the script left it.

    `change` may give the state other values before anything is compared.
    """
    with eager_stance(eager_arm):
        if not step.taken:
            _prime(step)
        state = find_state(step.original, step.arguments, step.keywords)
        change(state)
        snapshot = take_snapshot(state)
        expected = Expected(
            snapshot=snapshot,
            recorded=Reference(first={}, second={}, exact={}),
            changed=None,
            eager_differences=[],
            vacuous="",
            draws=False,
        )
        expected.draws = _draws(step, snapshot)
        if expected.draws:
            expected.dropouts = _dropouts(state.modules)
            expected.random = _random_outputs(step, snapshot)
            expected.snapshot = snapshot = _without_probabilities(snapshot, expected.dropouts)
        with expected.without_dropout():
            _fill(expected, step)
        snapshot.restore()
    expected.recorded = replace(expected.recorded, nudges=Nudges(expected, step, eager_arm=eager_arm, changed=False))
    if expected.changed is not None:
        expected.changed = replace(expected.changed, nudges=Nudges(expected, step, eager_arm=eager_arm, changed=True))
    return expected


def begin_alike(step: TimedStep, *, eager_arm: bool) -> None:
    """Bring the step into the state that `prime_and_expect` starts from and leaves behind, without any reference."""
    with eager_stance(eager_arm):
        if not step.taken:
            _prime(step)
        snapshot = take_snapshot(find_state(step.original, step.arguments, step.keywords))
        step.run_step(step.original)
        snapshot.restore()


def _prime(step: TimedStep) -> None:
    """Eager steps until optimizers have their state: one, and more while a loss scale is still so large that the step is skipped."""
    for _ in range(_MOST_SKIPPED):
        before = _loss_scales(step)
        step.run_step(step.original)
        after = _loss_scales(step)
        if after.keys() == before.keys() and all(after[name] >= before[name] for name in after):
            return


def _loss_scales(step: TimedStep) -> dict[str, float]:
    held = find_state(step.original, step.arguments, step.keywords).held
    return {name: float(item.tensor) for name, item in held.items() if item.kind == "scaler" and name.endswith("._scale")}


def _draws(step: TimedStep, snapshot: Snapshot) -> bool:
    from dynadiag.torch_compat.dispatch.live_call import RandomState

    snapshot.restore()
    draws = RandomState()
    step.run_step(step.original)
    return draws.moved()


def _random_outputs(step: TimedStep, snapshot: Snapshot) -> frozenset[str]:
    """The results that differ when the generators are in other states."""
    first, second = random_pair(step, snapshot, step.original)
    return frozenset(name for name, value in first.items() if name in second and not same_bits(value, second[name]))


def random_pair(step: TimedStep, snapshot: Snapshot, function: Callable[..., Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of two calls from one state, but for the generators."""
    snapshot.restore()
    first = run_and_collect(step, function)
    snapshot.restore()
    seed_generators(_OTHER_SEED)
    return first, run_and_collect(step, function)


def _without_probabilities(snapshot: Snapshot, dropouts: Sequence[tuple[Any, float]]) -> Snapshot:
    """The same snapshot, which does not put back the probabilities that the check sets to 0."""
    owners = {id(module.__dict__) for module, _ in dropouts}
    return replace(
        snapshot, slots=tuple((slot, value) for slot, value in snapshot.slots if slot.key != "p" or id(slot.owner) not in owners)
    )


def _dropouts(modules: Mapping[str, Any]) -> list[tuple[Any, float]]:
    import torch

    kinds = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d, torch.nn.Dropout3d, torch.nn.AlphaDropout)
    parts = {id(part): part for module in modules.values() for part in module.modules()}
    return [(part, part.p) for part in parts.values() if isinstance(part, kinds)]


def _fill(expected: Expected, step: TimedStep) -> None:
    from dynadiag.compare.rounding import on_fastest

    snapshot = expected.snapshot
    if expected.dropouts:
        expected.draws = _draws(step, snapshot)
        expected.notes.append("results were checked with dropout at probability 0")
    snapshot.restore()
    first = run_and_collect(step, step.original)
    snapshot.restore()
    second = run_and_collect(step, step.original)
    expected.vacuous = why_vacuous(first, snapshot)
    if lost := sum(not bool(on_fastest(value).isfinite().all()) for value in first.values()):
        expected.notes.append(
            f"{lost} of {len(first)} results contain NaN or infinity already in eager: there only the same values are correct"
        )
    exact = _exact(expected, step, first, changed=False)
    # A number that two eager runs do not share (a clock, a counter of objects) is no result.
    unstable = {name for name, value in first.items() if value.dim() == 0 and name in second and _number_moved(value, second[name])}
    tf32 = _may_use_tf32(snapshot.state.modules)
    nudged = {} if exact else _nudged(expected, step, tf32=tf32, changed=False)
    expected.recorded = _reference(first, second, exact, nudged, leave_out=unstable, tf32=tf32, before=snapshot.copies)
    expected.eager_differences = _eager_differences(expected.recorded, unstable)
    expected.changed = _on_changed_data(expected, step, unstable)


def _eager_differences(recorded: Reference, unstable: set[str]) -> list[Judged]:
    """The second eager run beside the first. What the two differ by is no excuse here, nor for outputs what a nudge moves: it moves
    everything where a program does not agree with itself.
    """
    second = {name: value for name, value in recorded.second.items() if name not in unstable}
    nudged = {name: value for name, value in recorded.nudged.items() if not name.startswith("output")}
    return compare_all(replace(recorded, second={}, nudged=nudged), second)


def _number_moved(value: Any, other: Any) -> bool:
    import torch

    return value.dtype is torch.float64 and not value.is_cuda and bool(value != other) and not bool(value.isnan() & other.isnan())


def _may_use_tf32(modules: Mapping[str, Any]) -> bool:
    """Whether float32 products of this step may be computed in TF32; convolutions may by default, products of matrices may not."""
    if not cuda_in_use():
        return False
    from dynadiag.torch_compat.dispatch.rounding import is_convolution, uses_tf32

    parts = [part for module in modules.values() for part in module.modules()]
    convolves = not parts or any(is_convolution(part) for part in parts)
    return uses_tf32(convolution=False) or (convolves and uses_tf32(convolution=True))


def _reference(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    exact: Mapping[str, Any],
    nudged: Mapping[str, Any],
    *,
    leave_out: set[str],
    tf32: bool,
    before: Mapping[str, Any],
) -> Reference:
    kept = {name: value for name, value in first.items() if name not in leave_out}
    return Reference(first=kept, second=second, exact=exact, nudged=nudged, tf32=tf32, before=before)


def _exact(expected: Expected, step: TimedStep, first: Mapping[str, Any], *, changed: bool) -> dict[str, Any]:
    """The results in float64; empty, with a note, where the step cannot run so or drew other random numbers."""
    from dynadiag.compare.noise import in_float64, loses_numbers

    expected.snapshot.restore()
    try:
        with in_float64(floating(expected.snapshot.state.held)):
            if changed:
                change_inputs(expected.snapshot.state.held)
            exact = run_and_collect(step, step.original)
    except Exception as error:  # noqa: BLE001 - the border around user code: it may insist on its dtype
        note_once(expected, f"no float64 run to compare with: it raised {type(error).__name__}: {str(error).strip()[:200]}")
        return {}
    finally:
        expected.snapshot.restore()
        _give_back_memory()
    exact = {name: value for name, value in exact.items() if name in first and value.shape == first[name].shape}
    if expected.draws and not _near(first, exact):
        note_once(expected, "no float64 run to compare with: it draws different random numbers")
        return {}
    if lost := next((name for name, value in exact.items() if loses_numbers(first[name], value)), None):
        # A kernel that reads float64 as something else gives such values; none of its results is a truth then.
        note_once(expected, f"no float64 run to compare with: {lost} is NaN or infinite there, but not in eager")
        return {}
    return exact


def _nudged(expected: Expected, step: TimedStep, *, tf32: bool, changed: bool) -> dict[str, Any]:
    """The results of eager on state that is half a rounding off, in the coarsest dtype that the step computes in.

    Where there is no float64 run, this says which results are rounding: without it an attention's key bias was called wrong (2.11, CUDA).
    """
    nudge(expected.snapshot.state.held, _coarsest(expected, step, tf32=tf32, changed=changed))
    try:
        return run_and_collect(step, step.original)
    finally:
        expected.snapshot.restore()


def _start(expected: Expected, *, changed: bool) -> None:
    expected.snapshot.restore()
    if changed:
        change_inputs(expected.snapshot.state.held)


def _coarsest(expected: Expected, step: TimedStep, *, tf32: bool, changed: bool) -> float:
    """The rounding of the coarsest dtype that the step computes in; the state is as at the start again."""
    from dynadiag.torch_compat.dispatch.rounding import CoarsestRounding

    _start(expected, changed=changed)
    with CoarsestRounding() as seen:
        step.run_step(step.original)
    _start(expected, changed=changed)
    return max(float(seen.eps), TF32_EPS if tf32 else 0.0)


@dataclass
class Nudges:
    """Called with names, runs eager some times with errors in its sums, most times from a state that is a bit off; gives these results.

    The state is as at the start of a step before and after, and what is compiled stays as it is.
    """

    expected: Expected
    step: TimedStep
    eager_arm: bool
    changed: bool
    eps: float | None = None

    def __call__(self, names: Collection[str]) -> Nudged:
        """The runs."""
        from dynadiag.compare.noise import SMALLEST_NUDGE

        expected = self.expected
        with eager_stance(self.eager_arm), expected.without_dropout():
            if self.eps is None:
                self.eps = max(_coarsest(expected, self.step, tf32=expected.recorded.tf32, changed=self.changed), SMALLEST_NUDGE)
            same = [self._run(names, seed, 0.0) for seed in range(_SAME)]
            further = [self._run(names, seed, self.eps) for seed in range(_NUDGES)]
            expected.snapshot.restore()
        return Nudged(further=further, same=same)

    def _run(self, names: Collection[str], seed: int, eps: float) -> dict[str, Any]:
        from dynadiag.torch_compat.dispatch.rounding import NoisySums

        _start(self.expected, changed=self.changed)
        if eps:
            nudge(self.expected.snapshot.state.held, eps, seed)
        with NoisySums(seed):
            output = self.step.run_step(self.step.original)
        return {name: value for name, value in collect(self.step, output).items() if name in names}


def _give_back_memory() -> None:
    """What the float64 run took, twice what the step needs: the processes of the other arms are on the same device."""
    import torch

    if cuda_in_use():
        torch.cuda.empty_cache()


def note_once(expected: Expected, text: str) -> None:
    """Say this in the arm's row."""
    if text not in expected.notes:
        expected.notes.append(text)


def _near(first: Mapping[str, Any], exact: Mapping[str, Any]) -> bool:
    outputs = [name for name in first if name.startswith("output") and name in exact and first[name].is_floating_point()]
    return all(_distance(first[name], exact[name]) < _SAME_DRAWS for name in outputs)


def _distance(value: Any, exact: Any) -> float:
    exact = exact.to(value.device).double()
    return float((value.double() - exact).norm() / exact.norm().clamp_min(1e-30))


def _on_changed_data(expected: Expected, step: TimedStep, unstable: set[str]) -> Reference | None:
    snapshot = expected.snapshot
    runs = []
    try:
        for _ in range(2):
            snapshot.restore()
            if not change_inputs(snapshot.state.held):
                return None
            runs.append(run_and_collect(step, step.original))
    except Exception as error:  # noqa: BLE001 - the border around user code: it may refuse the changed data
        expected.notes.append(f"results were compared on only one set of data: on rotated data, eager raised {type(error).__name__}")
        return None
    tf32 = expected.recorded.tf32
    exact = _exact(expected, step, runs[0], changed=True)
    nudged = {} if exact else _nudged(expected, step, tf32=tf32, changed=True)
    return _reference(runs[0], runs[1], exact, nudged, leave_out=unstable, tf32=tf32, before=snapshot.copies)
