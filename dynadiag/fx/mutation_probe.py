"""Which inputs of a graph are mutated, by which op on which user line, as data or metadata, in the graph or in the epilogue.

The graph runs once on fake tensors (no memory, no values). A dispatch mode looks at the arguments that each operator writes and finds the
input by the identity of its storage; shapes, strides and storage are compared before and after. Who writes the result back follows
`InputAliasInfo.mutation_type` and `_check_if_mutation_can_be_in_graph` (torch/_functorch/_aot_autograd, 2.11 and 2.15).
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dynadiag.errors import shorten
from dynadiag.fx.following import Follower
from dynadiag.fx.inputs import FILLINGS, InputSpec, aliases_of, fake_from_spec, make_inputs, reads_values
from dynadiag.fx.mutation_records import InputMutation, ProbeResult, Where, WriteKind, WriteSite
from dynadiag.fx.rebuild import Rebuilt
from dynadiag.fx.running import missing_device
from dynadiag.torch_compat.dispatch.state import fake_mode_for, fake_process_groups, kept_global_state
from dynadiag.torch_compat.dispatch.writes import WriteWatch, storage_bytes, storages

_LARGEST_REAL_BYTES = 64 * 1024 * 1024


def probe(rebuilt: Rebuilt, *, keep_input_mutations: bool = True) -> ProbeResult:
    """The mutations of a rebuilt graph; followed on real tensors when its values decide its sizes and they are small.

    `keep_input_mutations` False is for back ends that leave every write to the epilogue (`aot_autograd()` without the option).
    """
    result = _probe(rebuilt, keep_input_mutations, real=False)
    if result.error is None or rebuilt.input_bytes > _LARGEST_REAL_BYTES or missing_device(rebuilt) is not None:
        return result
    second = _probe(rebuilt, keep_input_mutations, real=True)
    return second if second.error is None else result


def lifted_specs(rebuilt: Rebuilt) -> list[InputSpec]:
    """The graph's inputs as AOTAutograd counts them: attributes first (it lifts them), then placeholders."""
    return [*(_lifted(spec) for spec in rebuilt.attributes), *rebuilt.inputs]


def _lifted(spec: InputSpec) -> InputSpec:
    return replace(spec, name=f"self.{spec.name}", source=spec.source or f"self.{spec.name}", static=spec.static or "attribute")


def _probe(rebuilt: Rebuilt, keep: bool, *, real: bool) -> ProbeResult:
    specs = lifted_specs(rebuilt)
    own_memory = [replace(spec, storage=None) for spec in specs]
    read = reads_values(rebuilt.graph_module)
    mode: Any = contextlib.nullcontext() if real else fake_mode_for()
    with fake_process_groups(rebuilt.groups), _quiet():
        with mode, torch.set_grad_enabled(True):
            values = make_inputs(own_memory, FILLINGS[0]) if real else [fake_from_spec(spec, with_value=read) for spec in own_memory]
        before = [_State.of(value) for value in values]
        lifted = dict(zip((spec.name for spec in rebuilt.attributes), values, strict=False))
        follower = Follower(rebuilt.graph_module, lifted=lifted, owners=_owners(values), symbols=rebuilt.symbols)
        with torch.set_grad_enabled(rebuilt.grad is not False), mode, WriteWatch(follower.saw):
            error = _run(follower, values[len(lifted) :])
    found = (_mutation(index, specs, value, before[index], follower.writes.get(index, []), keep) for index, value in enumerate(values))
    plain = [f"{spec.name}: followed as a plain tensor, not a {spec.subclass}" for spec in specs if spec.subclass]
    return ProbeResult(
        mutations=tuple(input_mutation for input_mutation in found if input_mutation is not None),
        error=error or (f"{follower.unknown[0]}: more may be mutated" if follower.unknown else None),
        notes=tuple(dict.fromkeys(follower.notes + plain)),
    )


def _run(follower: Follower, inputs: Sequence[Any]) -> str | None:
    try:
        follower.run(*inputs)
    except Exception as error:  # noqa: BLE001 - the border around a graph from a log
        return f"{type(error).__name__}: {shorten(str(error).strip(), 300)}"
    return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # FX prints generated code to stderr when a sub graph raises.
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings(), kept_global_state():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True, slots=True)
class _State:
    """What of a tensor may change without a write to its values.

    `held` keeps its first memory alive, so that no other gets its identity.
    """

    storage: tuple[int, ...]
    size: int | None
    layout: tuple[Any, ...]
    requires_grad: bool
    held: Any

    @staticmethod
    def of(value: Any) -> _State | None:
        if not isinstance(value, torch.Tensor):
            return None
        layout = (tuple(value.shape), tuple(value.stride()), value.storage_offset())
        return _State(tuple(storages(value)), storage_bytes(value), layout, value.requires_grad, value.untyped_storage())


def _owners(values: Sequence[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for index, value in enumerate(values):
        for key in storages(value) if isinstance(value, torch.Tensor) else ():
            found.setdefault(key, []).append(index)
    return found


def _mutation(
    index: int, specs: Sequence[InputSpec], value: Any, before: _State | None, sites: Sequence[WriteSite], keep: bool
) -> InputMutation | None:
    after = _State.of(value)
    if before is None or after is None:
        return None
    kinds = _kinds(before, after, sites)
    if not kinds:
        return None
    spec, writes = specs[index], [site for site in sites if site.kind == "data"]
    no_grad = bool(sites) and all(site.no_grad for site in (writes or sites))
    where = _where(kinds, requires_grad=after.requires_grad, no_grad=no_grad, keep=keep)
    size = None if spec.subclass is not None else before.size
    aliases, overlaps = aliases_of(specs, index)
    return InputMutation(
        index=index,
        name=spec.name,
        source=spec.source,
        kinds=kinds,
        where=where,
        no_grad=no_grad,
        requires_grad=after.requires_grad,
        static=spec.static,
        bytes_touched=_touched(writes, size),
        bytes_written_back=_written_back(value, spec, kinds, where),
        aliases=aliases,
        overlaps=overlaps,
        sites=tuple(sites),
    )


def _kinds(before: _State, after: _State, sites: Sequence[WriteSite]) -> tuple[WriteKind, ...]:
    """AOTAutograd counts a replaced storage alone: writes before or after `set_` belong to it."""
    replaced = any(site.op.startswith("aten.shallow_copy_data_") for site in sites)  # a fake tensor does not show that one
    storage = replaced or before.storage != after.storage or before.size != after.size
    kinds: list[WriteKind] = ["storage"] if storage else []
    if not storage and any(site.kind == "data" for site in sites):
        kinds.append("data")
    if not storage and before.layout != after.layout:
        kinds.append("metadata")
    if any(site.kind == "requires_grad" for site in sites) and before.requires_grad != after.requires_grad:
        kinds.append("requires_grad")
    return tuple(kinds)


def _where(kinds: Sequence[WriteKind], *, requires_grad: bool, no_grad: bool, keep: bool) -> Where:
    can_stay = keep and ("data" in kinds or "storage" in kinds)
    quiet = "metadata" not in kinds and "storage" not in kinds and not requires_grad
    if can_stay and (quiet or no_grad):
        return "in_graph"
    return "rejected" if "storage" in kinds else "epilogue"


def _touched(writes: Sequence[WriteSite], size: int | None) -> int | None:
    """Bytes that the writes reach at most, the input's own size being the most."""
    touched = [site.bytes_touched for site in writes]
    if None in touched or size is None:
        return None
    return min(size, sum(number for number in touched if number is not None))


def _written_back(value: torch.Tensor, spec: InputSpec, kinds: Sequence[WriteKind], where: Where) -> int | None:
    if where == "rejected" or spec.subclass is not None:
        return None
    return int(value.numel()) * value.element_size() if where == "epilogue" and "data" in kinds else 0
