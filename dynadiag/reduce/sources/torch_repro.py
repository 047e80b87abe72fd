"""A script made by torch (`repro.py`, `minifier_launcher.py`, the `fx_graph_runnable` of a log): its graph and inputs, read and never run.

Such a script holds one class `Repro`, a function `load_args(reader)` and a call of `run_repro` (torch/_dynamo/repro/after_aot.py,
after_dynamo.py and debug_utils.py `InputWriter`, 2.11 to 2.15). No torch here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dynadiag.errors import NotRebuildableError, UnreadableInputError
from dynadiag.files import read_small, write_inside
from dynadiag.fx.source_text import DTYPE_NAMES
from dynadiag.reduce.sources.torch_modules import ReadClass, arguments_of, contiguous, read_class
from dynadiag.torch_compat.dynamo.recorded_options import usable_options
from dynadiag.trace import sizes

_MODULES: Mapping[str, Literal["aot", "dynamo"]] = {
    "torch._dynamo.repro.after_aot": "aot",
    "torch._dynamo.repro.after_dynamo": "dynamo",
}
_CONFIG = re.compile(r"torch\._(dynamo|functorch|inductor)\.config\.([\w.]+)")
_HASH = re.compile(r"[0-9a-f]{8,64}")
_SHORT = {name: short for short, name in DTYPE_NAMES.items()}
_LONGEST_BYTES = 64 << 20
_MOST_RANKS = 1 << 16
Plain = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class TorchRepro:
    """What such a script says. `after` is the compiler whose failure it shows; `graph` the text of its class; `unread` why that cannot be
    rebuilt. `arguments` and `storages` are what `load_args` names, sizes as text; `attributes` are the tensors that the class holds;
    `lost` are options that are not set here: of modules that are not torch's, or such as may name programs, files or code;
    `groups` the process groups with their number of ranks.
    """

    after: Literal["aot", "dynamo"]
    graph: str
    unread: str | None
    storages: tuple[Mapping[str, Any], ...] = ()
    arguments: tuple[Mapping[str, Any], ...] = ()
    attributes: tuple[Mapping[str, Any], ...] = ()
    configs: tuple[tuple[str, Plain], ...] = ()
    lost: tuple[str, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    call: Mapping[str, Plain] = field(default_factory=dict)

    @property
    def accuracy(self) -> bool:
        """Whether it shows a wrong result and not an exception."""
        return self.call.get("accuracy") is True


def is_torch_repro(path: Path) -> bool:
    """Whether a file is such a script, by what it imports."""
    try:
        text = read_small(path.resolve(), _LONGEST_BYTES + 1).decode("utf-8", "replace")
        if len(text) > _LONGEST_BYTES:
            return False
    except (OSError, RuntimeError):  # no such file, a pipe or a device; links in a circle
        return False
    return any(f"from {name} import run_repro" in text for name in _MODULES) and "def load_args(" in text


def read_torch_repro(text: str) -> TorchRepro:
    """What the script says. Raises UnreadableInputError when it is no such script."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadableInputError(f"torch's script cannot be parsed: {type(error).__name__}") from None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Repro"]
    loading = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "load_args"]
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None]
    after = next((_MODULES[name] for name in imported if name in _MODULES), None)
    if len(classes) != 1 or len(loading) != 1 or after is None:
        raise UnreadableInputError("it is not a torch repro: expected one class Repro, one load_args and one run_repro")
    reading = _Reading()
    for statement in loading[0].body:
        reading.statement(statement)
    try:
        graph = _graph(text, tree, classes[0], reading)
    except NotRebuildableError as error:
        graph = ReadClass(text="", unread=str(error))
    configs, left = usable_options(_configs(tree))
    return TorchRepro(
        after=after,
        graph=graph.text,
        unread=reading.unread or graph.unread,
        attributes=graph.attributes,
        storages=tuple(reading.storages),
        arguments=tuple(reading.arguments),
        configs=tuple(configs),
        lost=(*left, *_lost(tree)),
        groups=_groups(tree),
        call=_call(tree),
    )


def _graph(text: str, tree: ast.Module, found: ast.ClassDef, reading: _Reading) -> ReadClass:
    """The class as Dynamo prints graphs, and why that cannot be had. Raises NotRebuildableError for a size that makes no sense."""
    names = arguments_of(found)
    if names is None:
        return ReadClass(text="", unread="it has no forward")
    annotations = _annotations(reading.arguments, reading.storages)
    if len(names) != len(annotations):
        why = next((argument["unsaved"] for argument in reading.arguments if "unsaved" in argument), None)
        return ReadClass(text="", unread=why or f"its forward takes {len(names)} arguments, but load_args makes {len(annotations)}")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and node is not found}
    read = read_class(text.splitlines(), found, classes, dict(zip(names, annotations, strict=False)))
    unsaved = next(
        (mapping["unsaved"] for name, mapping in zip(names, reading.arguments, strict=False) if "unsaved" in mapping and name in read.used),
        None,
    )
    return read if unsaved is None or read.unread is not None else replace(read, unread=unsaved)


def _annotations(arguments: list[Mapping[str, Any]], storages: list[Mapping[str, Any]]) -> list[str]:
    """What FX would print beside each argument. Raises NotRebuildableError for a size that makes no sense."""
    symbols = symbols_of(arguments)
    texts = []
    for argument in arguments:
        if "storage" not in argument:
            texts.append(f"Sym({argument['value'] if isinstance(argument['value'], int | float) else 0})")
            continue
        shape = [sizes.whole(text, symbols) for text in argument["shape"]]
        stride = contiguous(shape) if argument["stride"] is None else [sizes.whole(text, symbols) for text in argument["stride"]]
        texts.append(f"{_SHORT.get(argument['dtype'], 'f32')}{shape}{stride}{storages[argument['storage']]['device']}")
    return texts


def symbols_of(arguments: Sequence[Mapping[str, Any]]) -> dict[str, sizes.Number]:
    """The values of the symbolic sizes that `reader.symint` names."""
    return {
        argument["symbol"]: argument["value"] for argument in arguments if argument.get("symbol") and isinstance(argument.get("value"), int)
    }


def _configs(tree: ast.Module) -> Iterator[tuple[str, Plain]]:
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Constant | ast.UnaryOp):
            continue
        named = _CONFIG.fullmatch(ast.unparse(node.targets[0]))
        value = _literal(node.value)
        if named is not None and isinstance(value, bool | int | float | str | None):
            yield f"{named[1]}.{named[2]}", value


def _lost(tree: ast.Module) -> Iterator[str]:
    """Options of a back end that is not torch's: `import their_config` and `their_config.option = value` (after_aot.py, 2.15)."""
    imported = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names if not name.name.startswith("torch")}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) in imported and isinstance(node, ast.Assign):
            yield ast.unparse(node)[:80]


def _groups(tree: ast.Module) -> dict[str, int]:
    """The number of ranks of each process group (`setup_fake_process_groups`, after_aot.py, 2.15)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "setup_fake_process_groups" and len(node.args) == 1:
            said = _literal(node.args[0])
            groups = said if isinstance(said, dict) else {}
            sizes = {name: item.get("size") for name, item in groups.items() if isinstance(name, str) and isinstance(item, dict)}
            return {name: size for name, size in sizes.items() if type(size) is int and 0 < size < _MOST_RANKS}
    return {}


def _call(tree: ast.Module) -> dict[str, Plain]:
    """The plain keyword arguments of `run_repro`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "run_repro":
            said = {keyword.arg: _literal(keyword.value) for keyword in node.keywords if keyword.arg is not None}
            return {name: value for name, value in said.items() if isinstance(value, bool | int | float | str | None)}
    return {}


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


class _Reading:
    """Follows `load_args`: which storages and which arguments it names."""

    def __init__(self) -> None:
        self.storages: list[Mapping[str, Any]] = []
        self.arguments: list[Mapping[str, Any]] = []
        self.unread: str | None = None
        self._names: dict[str, int] = {}

    def statement(self, node: ast.stmt) -> None:
        """One line: `buf0 = reader.storage(...)` or `reader.tensor(buf0, ...)` and the like."""
        if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            self.unread = self.unread or f"load_args does something else: {ast.unparse(node)[:80]!r}"
            return
        named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        if isinstance(node, ast.Assign) and call.func.attr == "storage" and isinstance(node.targets[0], ast.Name):
            self._names[node.targets[0].id] = len(self.storages)
            self.storages.append(_storage(call.args, named))
        elif call.func.attr == "tensor" and len(call.args) >= 2:
            self._tensor(call.args, named)
        elif call.func.attr == "symint" and call.args:
            self.arguments.append({"value": _literal(call.args[0]), "symbol": _literal(named["expr"]) if "expr" in named else None})
        elif call.func.attr == "const":
            self.arguments.append({"value": None, "symbol": None})
        elif call.func.attr in ("unsupported", "generator", "opaque"):
            # Nobody misses it where the graph does not read it.
            why = f"argument {len(self.arguments)} is of an unsupported kind ({call.func.attr})"
            self.arguments.append({"value": None, "symbol": None, "unsaved": why})
        else:
            self.unread = self.unread or f"load_args does something else: {ast.unparse(node)[:80]!r}"

    def _tensor(self, args: list[ast.expr], named: Mapping[str, ast.expr]) -> None:
        number = self._names.get(ast.unparse(args[0]))
        if number is None:
            self.unread = self.unread or f"argument {len(self.arguments)} has no storage"
            return
        if _is_true(named, "neg"):
            self.unread = self.unread or f"argument {len(self.arguments)} is a negated view"
        stride = args[2] if len(args) > 2 else named.get("stride")
        self.arguments.append(
            {
                "storage": number,
                "shape": _texts(args[1]),
                "stride": None if stride is None else _texts(stride),
                "offset": ast.unparse(named["storage_offset"]) if "storage_offset" in named else "0",
                "dtype": _dtype(named.get("dtype")),
                "requires_grad": _is_true(named, "requires_grad"),
                "computed": _is_true(named, "requires_grad") and not _is_true(named, "is_leaf"),
                "conj": _is_true(named, "conj"),
            }
        )


def _is_true(named: Mapping[str, ast.expr], name: str) -> bool:
    return name in named and _literal(named[name]) is True


def _storage(args: list[ast.expr], named: Mapping[str, ast.expr]) -> Mapping[str, Any]:
    digest = _literal(args[0]) if args else None
    device = re.search(r"type='(\w+)'(?:, index=(\d+))?", ast.unparse(named["device"])) if "device" in named else None
    return {
        "hash": digest if isinstance(digest, str) and _HASH.fullmatch(digest) else None,
        "bytes": ast.unparse(args[1]) if len(args) > 1 else "0",
        "device": "cpu" if device is None else device[1] + (f":{device[2]}" if device[2] else ""),
        "dtype": _dtype(named.get("dtype_hint")),
    }


def _texts(node: ast.expr) -> list[str]:
    return [ast.unparse(element) for element in node.elts] if isinstance(node, ast.Tuple | ast.List) else [ast.unparse(node)]


def _dtype(node: ast.expr | None) -> str:
    return "float32" if node is None else ast.unparse(node).removeprefix("torch.")


def not_saved(repro: TorchRepro, near: Path) -> int:
    """How many storages of its inputs are not there and must be made up."""
    folder = _storages_folder(repro, near)
    return sum(folder is None or storage["hash"] is None or not (Path(folder) / storage["hash"]).is_file() for storage in repro.storages)


def capture_script(path: Path, out: Path, *, backend: str | None) -> tuple[TorchRepro, list[Path]]:
    """What a script of torch says, and its capture folders: once as it is, and for one of Dynamo's graphs once more with a backward.

    Raises UnreadableInputError when it cannot be read or rebuilt.
    """
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise UnreadableInputError(f"cannot read {path}: {error.strerror or error}") from None
    repro = read_torch_repro(text)
    backwards = (False, True) if repro.after == "dynamo" else (False,)
    folders = [
        write_capture(repro, out / "capture" / f"graph-{number}", near=path.absolute().parent, backend=backend, backward=backward)
        for number, backward in enumerate(backwards)
    ]
    return repro, folders


def write_capture(repro: TorchRepro, folder: Path, *, near: Path | None, backend: str | None, backward: bool = False) -> Path:
    """Write it as a captured graph; `near` is the folder of the script, in which saved storages are looked for.

    Raises UnreadableInputError with the reason when the script holds what is not rebuilt.
    """
    if repro.unread is not None:
        way = "" if near is None else "; --as-script runs the file itself (pass it the argument run)"
        raise UnreadableInputError(f"torch's repro cannot be rebuilt: {repro.unread}{way}", exit_code=1)
    folder.mkdir(parents=True, exist_ok=True)
    saved = {
        "storages": repro.storages,
        "arguments": repro.arguments,
        "attributes": repro.attributes,
        "folder": _storages_folder(repro, near),
    }
    recorded = repro.call.get("backend") if repro.after == "dynamo" else "inductor"
    setting = {
        "backend": backend or (recorded if isinstance(recorded, str) else "inductor"),
        "grad": repro.after == "dynamo",
        "dynamic": True if repro.call.get("tracing_mode") == "symbolic" else None,
        "configs": repro.configs,
        "configs_lost": repro.lost,
        "groups": repro.groups,
        "autocast": ("cuda", "float16") if repro.call.get("autocast") is True else None,
        "backward": backward,
    }
    write_inside(folder, "graph.txt", repro.graph)
    write_inside(folder, "arguments.json", json.dumps(saved))
    write_inside(folder, "setting.json", json.dumps(setting))
    return folder


def _storages_folder(repro: TorchRepro, near: Path | None) -> str | None:
    """The folder of the saved storages, only where it lies in the folder of the script: a stranger's script names no other."""
    if near is None:
        return None
    named = repro.call.get("save_dir")
    places = [near / "checkpoints", *([Path(named)] if isinstance(named, str) else [])]
    inside = [place / "storages" for place in places if place.resolve().is_relative_to(near.resolve())]
    return next((str(place) for place in inside if place.is_dir()), None)
