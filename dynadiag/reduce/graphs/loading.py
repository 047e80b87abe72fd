"""A captured graph back from its folder: its text is rebuilt from an allow-list, its tensors are read with `weights_only`.

So are the storages beside a repro that torch wrote.
"""

from __future__ import annotations

import functools
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from dynadiag.errors import NotRebuildableError, UnreadableInputError
from dynadiag.fx.building import group_sizes
from dynadiag.fx.inputs import contiguous_stride
from dynadiag.fx.rebuild import RebuildOptions, rebuild
from dynadiag.fx.running import is_here, missing_device
from dynadiag.json_lines import value_of
from dynadiag.reduce.graphs.candidate import Candidate
from dynadiag.reduce.graphs.inputs import COMPUTED, HOME, LARGE_BYTES, Input, from_value
from dynadiag.reduce.graphs.setting import Setting, from_json
from dynadiag.reduce.sources.torch_repro import symbols_of
from dynadiag.torch_compat.dispatch.saved_values import from_saved
from dynadiag.torch_compat.dynamo.backend import option_value
from dynadiag.torch_compat.dynamo.backend_source import names_of
from dynadiag.torch_compat.dynamo.compiling import has_option
from dynadiag.torch_compat.dynamo.recorded_options import HARNESS
from dynadiag.trace import sizes

_MOST_BYTES = 64 << 30


_SENSELESS = (
    *(NotRebuildableError, UnpicklingError, KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, OSError, EOFError),
)


def stored_inputs(file: Path) -> dict[str, Any]:
    """What `inputs.pt` of a capture holds, made from `arguments.json`: "inputs", "requires_grad", "computed", "homes", and "attributes".

    Missing storages hold normal random numbers (integers: zeros), as torch's own reader makes them (`InputReader.storage`, 2.11).
    Raises UnreadableInputError when a size or a storage makes no sense.
    """
    said = value_of(file.read_text("utf-8"))
    try:
        return _inputs(said)
    except _SENSELESS as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UnreadableInputError(f"the inputs of the repro cannot be created: {line}", exit_code=1) from error


def _inputs(said: Mapping[str, Any]) -> dict[str, Any]:
    symbols = symbols_of(said["arguments"])
    generator = torch.Generator().manual_seed(0)
    storages = [_storage(item, said["folder"], symbols, generator) for item in said["storages"]]
    values = [_stored_value(element, storages, symbols) for element in said["arguments"]]
    homes = [said["storages"][entry["storage"]]["device"] if "storage" in entry else None for entry in said["arguments"]]
    return {
        "inputs": values,
        "requires_grad": [bool(one.get("requires_grad")) for one in said["arguments"]],
        "computed": [bool(one.get("computed")) for one in said["arguments"]],
        "homes": homes,
        "attributes": {one["name"]: _attribute(one, generator) for one in said.get("attributes", ())},
    }


def _attribute(mapping: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
    """A tensor of the module: its values where torch wrote them, else random ones (integers: zeros), as its script makes them."""
    dtype: torch.dtype = getattr(torch, mapping["dtype"])
    if mapping["values"] is not None:
        value = torch.tensor(mapping["values"], dtype=dtype)
    else:
        count = math.prod(mapping["shape"])
        if not 0 <= count * dtype.itemsize <= _MOST_BYTES:
            raise ValueError(f"a tensor of {count} elements")
        value = torch.randn(count, generator=generator).to(dtype) if dtype.is_floating_point else torch.zeros(count, dtype=dtype)
    return {"value": value.reshape(mapping["shape"]), "home": mapping["device"], "requires_grad": bool(mapping.get("requires_grad"))}


def _storage(
    mapping: Mapping[str, Any], folder: str | None, symbols: Mapping[str, sizes.Number], generator: torch.Generator
) -> torch.UntypedStorage:
    name = mapping["hash"] if isinstance(mapping["hash"], str) and mapping["hash"].isalnum() else None
    if folder is not None and name is not None and (Path(folder) / name).is_file():
        loaded = torch.load(Path(folder) / name, weights_only=True, map_location="cpu")
        # What is saved is an untyped storage, which reading with `weights_only` gives as a typed one of bytes.
        return loaded if isinstance(loaded, torch.UntypedStorage) else loaded._untyped_storage
    dtype: torch.dtype = getattr(torch, mapping["dtype"])
    count = sizes.whole(mapping["bytes"], symbols) // dtype.itemsize
    if not 0 <= count * dtype.itemsize <= _MOST_BYTES:
        raise ValueError(f"a storage of {count} elements")
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(count, generator=generator).to(dtype).untyped_storage()
    return torch.zeros(count, dtype=dtype).untyped_storage()


def _stored_value(mapping: Mapping[str, Any], storages: list[torch.UntypedStorage], symbols: Mapping[str, sizes.Number]) -> Any:
    if "storage" not in mapping:
        return mapping["value"]
    shape = [sizes.whole(text, symbols) for text in mapping["shape"]]
    stride = contiguous_stride(shape) if mapping["stride"] is None else [sizes.whole(text, symbols) for text in mapping["stride"]]
    empty = torch.empty(0, dtype=getattr(torch, mapping["dtype"]))
    made = empty.set_(storages[mapping["storage"]], sizes.whole(mapping["offset"], symbols), tuple(shape), tuple(stride))
    return made.conj() if mapping.get("conj") else made


NOT_REBUILT = "not-rebuilt"
"""The slug of what is raised where the graph, or its backend, cannot be made again outside of the script."""


def load_capture(folder: Path) -> tuple[Candidate, Setting]:
    """The candidate and its setting. Raises UnreadableInputError when the folder is not whole or the graph cannot be rebuilt."""
    try:
        return _loaded(folder)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        traceback.print_exc()  # into the worker's log: somebody changed the files, or the mistake is ours
        raise _unreadable(folder, ValueError(f"it does not contain what a capture contains ({type(error).__name__}: {error})")) from error


def _loaded(folder: Path) -> tuple[Candidate, Setting]:
    try:
        state = value_of((folder / "setting.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from error
    if state.get("trouble"):
        raise UnreadableInputError(f"a reproducer cannot refer to the backend: {state['trouble']}", slug=NOT_REBUILT, exit_code=1)
    candidate, setting = load_candidate(folder, _configs(state)), _setting(state)
    named = group_sizes(candidate.module)
    return candidate, replace(setting, groups={name: setting.groups.get(name, size) for name, size in named.items()})


def load_candidate(folder: Path, configs: tuple[tuple[str, Any], ...]) -> Candidate:
    """The graph with its inputs. Raises UnreadableInputError as `load_capture` does."""
    try:
        text = (folder / "graph.txt").read_text("utf-8")
        details = value_of((folder / "details.json").read_text("utf-8")) if (folder / "details.json").exists() else None
        arguments = folder / "arguments.json"
        saved = stored_inputs(arguments) if arguments.exists() else _tensors(folder / "inputs.pt")
        attributes = saved["attributes"] if saved is not None and "attributes" in saved else _tensors(folder / "attributes.pt")
    except UnpicklingError as error:  # torch's own words advise to read it without that care
        raise _unreadable(
            folder, ValueError("one of its tensor files contains something else, or is damaged; it was not unpickled")
        ) from error
    except (OSError, ValueError, RuntimeError, EOFError) as error:
        raise _unreadable(folder, error) from error
    try:
        # All values on the CPU: the process that loads them forks, and must not initialise CUDA before.
        rebuilt = rebuild(text, details=details, options=RebuildOptions(values_on="cpu"))
    except NotRebuildableError as error:
        raise UnreadableInputError(f"the captured graph cannot be rebuilt: {error}", slug=NOT_REBUILT, exit_code=1) from error
    homes = [home for home in saved["homes"] if home is not None] if saved is not None else []
    missing = missing_device(rebuilt) or next((home for home in homes if not is_here(home)), None)
    if missing is not None:
        raise UnreadableInputError(f"the captured graph needs the device {missing}, which this machine does not have", exit_code=1)
    module = rebuilt.graph_module
    if saved is None:
        inputs = [
            _value(value, isinstance(value, torch.Tensor) and value.requires_grad, spec.device)
            for value, spec in zip(rebuilt.example_inputs(), rebuilt.inputs, strict=True)
        ]
        made = [(attribute, functools.reduce(getattr, attribute.name.split("."), module)) for attribute in rebuilt.attributes]
        attributes = {
            input_spec.name: {"value": value, "home": input_spec.device or "cpu"}
            for input_spec, value in made
            if isinstance(value, torch.Tensor)
        }
    else:
        inputs = input_values(saved)
    inputs += _lifted(module.graph, attributes or {})
    return Candidate(GraphModule(module, module.graph), tuple(recipes(inputs, "input")), configs)


def input_values(saved: Mapping[str, Any]) -> list[Any]:
    """The inputs that a capture saved; the tensors say where they lived, and whether they were computed."""
    inputs = [_value(*three) for three in zip(saved["inputs"], saved["requires_grad"], saved["homes"], strict=True)]
    for value, is_computed in zip(inputs, saved.get("computed", ()), strict=False):
        if is_computed:
            setattr(value, COMPUTED, True)
    return inputs


def with_inputs(candidate: Candidate, file: Path) -> Candidate:
    """The candidate with the inputs that a later call of its graph had. Raises UnreadableInputError for a file that is not whole."""
    try:
        values = input_values(read_saved(file))
    except _SENSELESS as error:
        raise _unreadable(file.parent, error) from error
    lifted = candidate.inputs[len(values) :]
    return replace(candidate, inputs=(*recipes(values, "input"), *lifted))


def recipes(values: Sequence[Any], name: str) -> list[Input]:
    """The recipes of real values, each with a name of its own."""
    return [from_value(value, f"{name} {position}") for position, value in enumerate(values)]


def _unreadable(folder: Path, error: Exception) -> UnreadableInputError:
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UnreadableInputError(f"the captured graph in {folder} cannot be read: {line}")


def _tensors(path: Path) -> dict[str, Any] | None:
    """What the capture saved; None in a capture from a recording, which holds no tensors."""
    return read_saved(path) if path.exists() else None


def read_saved(path: Path) -> dict[str, Any]:
    """A file of tensors; a large one is mapped, not read. Raises what `torch.load` raises."""
    large = path.stat().st_size >= LARGE_BYTES
    loaded: dict[str, Any] = from_saved(torch, torch.load(str(path), weights_only=True, map_location="cpu", mmap=large))
    return loaded


def _lifted(graph: Graph, attributes: dict[str, Any]) -> list[Any]:
    """Tensors that the graph reads from its module become its last inputs: gives their values."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    values = []
    for node in [node for node in graph.nodes if node.op == "get_attr" and node.target in attributes]:
        with graph.inserting_after(placeholders[-1]) if placeholders else graph.inserting_before(next(iter(graph.nodes))):
            placeholders.append(graph.placeholder(node.name))
        node.replace_all_uses_with(placeholders[-1])
        held = attributes[node.target]
        values.append(_value(held["value"], bool(held.get("requires_grad")), held["home"]))
        graph.erase_node(node)
    return values


def _value(value: Any, wants_grad: bool, home: str | None) -> Any:
    if isinstance(value, torch.Tensor):
        if home is not None:
            setattr(value, HOME, home)
        value.requires_grad_(wants_grad)
    return value


def _configs(state: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Without those that this torch does not have: a recording may come from another."""
    known = [(name, value) for name, value in state["configs"] if not any(part in name for part in HARNESS)]
    try:
        return tuple((name, option_value(value)) for name, value in known if has_option(name))
    except (ValueError, ImportError, KeyError, SyntaxError) as error:
        raise UnreadableInputError(f"an option of the captured graph cannot be set: {error}", exit_code=1) from error


def _setting(state: dict[str, Any]) -> Setting:
    setting = replace(from_json(state), lost_options=tuple(map(str, state.get("configs_lost", ()))))
    if setting.backend_source is None:
        return setting
    # The function of the user's own script, which ran a moment ago; its source is what the reproducer will hold.
    names = names_of(setting.backend_source, "module_of_the_backend")
    return replace(setting, backend=names[setting.backend], backend_as=setting.backend)
