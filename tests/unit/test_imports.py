"""The import rules of the architecture, read from the source of every module, and what the command line really imports."""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag_cli.main import app

ROOT = Path(__file__).parents[2]

LOWEST = {
    "digests",
    "dotted_names",
    "errors",
    "files",
    "import_watcher",
    "json_lines",
    "masking",
    "process_identity",
    "scratch",
    "torch_state",
}
# What each part may import besides itself; `docs/architecture.md` draws the same. `dynadiag` itself (its version) is open to all.
MAY_IMPORT = {
    "errors": set(),
    "dotted_names": set(),
    "files": set(),
    "digests": set(),
    "torch_state": set(),
    "import_watcher": set(),
    "json_lines": set(),
    "masking": set(),
    "process_identity": set(),
    "scratch": {"process_identity"},
    "private_view": {"errors", "process_identity", "scratch"},
    "revisions": {"errors"},
    "model": {"errors"},
    "torch_compat": {"dotted_names", "torch_state", "errors", "files", "model"},
    "compare": {"dotted_names", "errors", "model", "torch_compat", "capture"},
    "children": {"errors", "files", "json_lines", "private_view", "scratch", "torch_compat"},
    "record": LOWEST - {"json_lines"} | {"private_view", "model", "rules.libraries", "torch_compat", "compare"},
    "capture": {"errors", "files", "import_watcher", "torch_compat"},
    "trace": {"digests", "dotted_names", "errors", "masking", "files", "process_identity", "model"},
    "facts": {"dotted_names", "torch_state", "errors", "model", "trace"},
    "source": {"errors", "model", "trace", "facts"},
    "changes": {"errors", "model", "rules.libraries", "trace", "facts", "source"},
    "advice": {"errors", "model", "trace", "facts", "source", "changes"},
    "passes": {"errors", "model", "trace", "facts", "source", "changes", "advice"},
    "rules": {"errors", "model", "advice", "rules.libraries"},
    "rules.libraries": set(),
    "runs": {"errors", "model", "record", "trace"},
    "report": {"errors", "model", "trace", "facts", "passes", "advice"},
    "diff": {"errors", "graphs", "model", "trace", "facts", "render"},
    "start": {"capture", "changes", "diff", "errors", "facts", "files", "graphs", "model", "record", "render", "scratch", "trace"},
    "gate": {"errors", "files", "model", "record", "facts", "runs", "render"},
    "graphs": {"children", "errors", "json_lines", "model", "trace"},
    "render": {"errors", "graphs", "json_lines", "masking", "files", "model", "trace", "facts", "changes", "rules"},
    "share": {"digests", "errors", "files", "masking", "scratch", "model", "trace", "facts", "report", "render"},
    "fx": {"dotted_names", "errors", "files", "json_lines", "scratch", "model", "torch_compat", "trace"},
    "doctor": {"errors", "torch_compat", "masking"},
    "bootstrap": {"record", "capture"},
    "reduce": LOWEST
    | {
        "children",
        "private_view",
        "model",
        "torch_compat",
        "compare",
        "record",
        "trace",
        "fx",
        "passes",
        "advice",
        "report",
        "capture",
        "render",
    },
    "bench": LOWEST
    | {"children", "private_view", "revisions", "compare", "model", "torch_compat", "record", "trace", "report", "capture", "render"},
    "numerics": LOWEST | {"capture", "children", "model", "facts", "torch_compat", "compare", "record", "trace", "fx", "reduce", "render"},
    "parity": LOWEST | {"children", "model", "torch_compat", "compare", "record", "trace", "fx", "passes", "report", "render"},
    "fix": LOWEST
    | {
        "children",
        "graphs",
        "private_view",
        "revisions",
        "model",
        "torch_compat",
        "compare",
        "record",
        "capture",
        "trace",
        "facts",
        "source",
        "changes",
        "rules.libraries",
        "advice",
        "report",
        "render",
        "bench",
    },
    "sweep": {"errors", "files", "json_lines", "scratch", "model", "facts", "render", "record"},
    "api": {"errors", "model", "torch_compat", "record", "trace", "report", "render"},
    "notebook": {"errors", "model", "record", "api"},
    "pytest_plugin": {"errors", "model", "torch_compat", "record", "render", "gate", "api"},
    "__init__": {"api", "bench", "notebook", "record", "reduce"},
}
# Folders that are parts of their own: the data below what they lie in.
NESTED = ("rules.libraries",)
# The walls inside `reduce`; what stands beside these folders (`minify`, the session, the two worker processes) may import all of them.
IN_REDUCE = {
    "core": set(),
    "sources": {"core"},
    "graphs": {"core", "sources"},
    "scripts": {"core"},
    "reproducer": {"core", "graphs", "scripts"},
}
WITHOUT_TORCH = LOWEST | {
    "private_view",
    "model",
    "trace",
    "facts",
    "source",
    "changes",
    "passes",
    "advice",
    "report",
    "render",
    "rules",
    "runs",
    "gate",
    "graphs",
    "diff",
    "share",
    "revisions",
    "__init__",
    "api",
}
# record runs in the user's process: the standard library and torch, nothing else. It also starts as a plain folder on PYTHONPATH.
THIRD_PARTY_FREE = LOWEST | {"private_view", "model", "torch_compat", "compare", "record", "trace", "capture", "bootstrap"}
VERBS = [command.name for command in app.registered_commands]
HELPS = [["--help"], ["--version"], *([verb, "--help"] for verb in VERBS)]
PRIVATE_TORCH = re.compile(r"^torch\.(?:\w+\.)*_(?!_)")
OF_PYTHON = {"_fields", "_initializing"}  # of named tuples and of import specs


@functools.cache
def modules() -> list[Path]:
    return sorted((ROOT / "dynadiag").rglob("*.py"))


def part_of(path: Path) -> str:
    first, *rest = path.relative_to(ROOT / "dynadiag").with_suffix("").parts
    return next((part for part in NESTED if [first, *rest][:2] == part.split(".")), first)


@functools.cache
def imported(path: Path, *, runtime_only: bool = False) -> set[str]:
    """Full names of the modules that a file imports, at any depth; `runtime_only` leaves out `if TYPE_CHECKING:`."""
    return imported_by(path.read_text(encoding="utf-8"), path, runtime_only=runtime_only)


def imported_by(source: str, path: Path, *, runtime_only: bool = False) -> set[str]:
    names: set[str] = set()
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    pending: list[ast.AST] = [ast.parse(source, str(path))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and runtime_only:
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])]) if node.level else node.module
            names.update({base, *(f"{base}.{alias.name}" for alias in node.names)})
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case | ast.Module):  # an expression imports nothing
            pending.extend(ast.iter_child_nodes(node))
    return names


def top_level(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@functools.cache
def parts() -> set[str]:
    return {part_of(path) for path in modules()}


def parts_in(names: set[str]) -> set[str]:
    inside = [name.split(".")[1:] for name in names if name.startswith("dynadiag.")]
    return {next((part for part in NESTED if name[:2] == part.split(".")), name[0]) for name in inside} & parts()


def test_every_part_is_in_the_table():
    assert parts() - set(MAY_IMPORT) - {"__main__"} == set()


def test_no_parts_import_each_other():
    """A circle in the table raises `CycleError`, which names it."""
    assert set(graphlib.TopologicalSorter(MAY_IMPORT).static_order()) == set(MAY_IMPORT)


def test_no_plain_data_modules_import_each_other():
    """Not for type checking only either: what `Run` and `Report` are made of reads from the bottom up."""
    names = {f"dynadiag.model.{path.stem}": path for path in modules() if part_of(path) == "model" and path.stem != "__init__"}
    graphlib.TopologicalSorter({name: imported(path) & set(names) for name, path in names.items()}).prepare()


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_imports_point_downwards(part):
    wrong = {
        str(path.relative_to(ROOT)): sorted(beyond)
        for path in modules()
        if part_of(path) == part and (beyond := parts_in(imported(path)) - MAY_IMPORT[part] - {part})
    }
    assert wrong == {}


@pytest.mark.parametrize("folder", sorted(IN_REDUCE))
def test_the_walls_of_reduce_hold(folder):
    """A name of `dynadiag.reduce` itself counts as a folder that is not allowed."""
    wrong = {
        str(path.relative_to(ROOT)): sorted(beyond)
        for path in sorted((ROOT / "dynadiag/reduce" / folder).rglob("*.py"))
        if (beyond := reduce_parts(imported(path)) - IN_REDUCE[folder] - {folder})
    }
    assert wrong == {}


def test_every_folder_of_reduce_has_a_wall():
    assert {path.parent.name for path in (ROOT / "dynadiag/reduce").glob("*/__init__.py")} == set(IN_REDUCE)


def test_no_other_part_reaches_into_reduce_but_numerics_for_captured_graphs():
    allowed = {"numerics": {"graphs", "sources", "session", "worker_process"}}
    wrong = {
        str(path.relative_to(ROOT)): sorted(beyond)
        for path in modules()
        if part_of(path) not in ("reduce", "__init__") and (beyond := reduce_parts(imported(path)) - allowed.get(part_of(path), set()))
    }
    assert wrong == {}


def reduce_parts(names: set[str]) -> set[str]:
    """What lies directly below `dynadiag.reduce` of these names."""
    return {name.split(".")[2] for name in names if name.startswith("dynadiag.reduce.")}


def test_nothing_below_the_command_line_imports_it():
    assert [str(path) for path in modules() if "dynadiag_cli" in top_level(imported(path)) and part_of(path) != "__main__"] == []


@pytest.mark.parametrize("part", sorted(WITHOUT_TORCH))
def test_pure_parts_never_import_torch(part):
    assert [str(path) for path in modules() if part_of(path) == part and "torch" in top_level(imported(path, runtime_only=True))] == []


@pytest.mark.parametrize("part", sorted(THIRD_PARTY_FREE))
def test_what_runs_in_the_users_process_needs_no_package_of_ours(part):
    allowed = set(sys.stdlib_module_names) | {"torch", "dynadiag"} | {path.stem for path in (ROOT / "dynadiag/bootstrap").glob("*.py")}
    wrong = {str(path): sorted(beyond) for path in modules() if part_of(path) == part and (beyond := top_level(imported(path)) - allowed)}
    assert wrong == {}


def private_names(source: str, imports: set[str]) -> list[str]:
    """Where a source reaches for a private name: imported, as an attribute, by `getattr` or by a module's name."""
    found = [name for name in imports if PRIVATE_TORCH.match(name)]
    if not re.search("torch|attr", source):
        return found
    nodes = list(ast.walk(ast.parse(source)))
    aliases = dict(alias for node in nodes for alias in torch_aliases(node))
    for node in nodes:
        name = ""
        if isinstance(node, ast.Attribute):
            name = dotted(node)
            root, _, rest = name.partition(".")
            name = f"{aliases.get(root, root)}.{rest}"
        elif isinstance(node, ast.Call) and len(node.args) > 1 and dotted(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            name = f"torch.{text_of(node.args[1])}"
            name = "" if name.removeprefix("torch.") in OF_PYTHON else name
        elif isinstance(node, ast.Call) and node.args and dotted(node.func).endswith(("import_module", "__import__", "sys.modules.get")):
            name = text_of(node.args[0])
        elif isinstance(node, ast.Subscript) and dotted(node.value) == "sys.modules":
            name = text_of(node.slice)
        if PRIVATE_TORCH.match(name):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def dotted(node: ast.expr) -> str:
    """`a.b.c` as a text; what `b` and `c` are asked of, where it has no name, is none."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    names.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(names))


def torch_aliases(node: ast.AST) -> list[tuple[str, str]]:
    """What an import binds to something of torch's: `nn` to `torch.nn`."""
    if isinstance(node, ast.Import):
        return [(alias.asname, alias.name) for alias in node.names if alias.asname and alias.name.startswith("torch")]
    if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "torch":
        return [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
    return []


def text_of(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "from torch import _dynamo",
        "from torch.utils import _pytree as pytree",
        "from torch.fx.node import _get_qualified_name",
        "import torch\ntorch.fx._symbolic_trace",
        "import torch.utils as u\nu._pytree",
        "from torch import nn\nnn.Module._call_impl",
        "getattr(node.target, '_schema', None)",
        "import importlib\nimportlib.import_module('torch._inductor.config')",
        "import sys\nsys.modules.get('torch._dynamo')",
        "import sys\nsys.modules['torch.fx._lazy_graph_module']",
    ],
)
def test_a_private_name_of_torch_is_found_however_it_is_spelled(source):
    assert private_names(source, imported_by(source, ROOT / "dynadiag/api.py"))


@pytest.mark.parametrize("source", ["import torch\ntorch.nn.Module.__call__", "self._x", "getattr(value, '_fields', None)", "x.__dict__"])
def test_other_names_are_none_of_torchs(source):
    assert private_names(source, imported_by(source, ROOT / "dynadiag/api.py")) == []


def test_private_names_of_torch_stay_behind_one_door():
    files = [*modules(), *sorted((ROOT / "cli").rglob("*.py"))]
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in files
        if part_of_any(path) != "torch_compat" and (found := private_names(path.read_text(encoding="utf-8"), imported(path)))
    }
    assert wrong == {}


def part_of_any(path: Path) -> str:
    return part_of(path) if path.is_relative_to(ROOT / "dynadiag") else "cli"


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"}
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment, cwd=ROOT)


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """What each help prints, in processes of their own that have imported the command line alone."""
    done = run_python(
        "import os, sys\n"
        "from dynadiag_cli.main import main\n"
        f"for arguments in {HELPS!r}:\n"
        "    print('HELP', ' '.join(arguments), flush=True)\n"
        "    if not os.fork():\n"
        "        sys.argv = ['dynadiag', *arguments]\n"
        "        try:\n            main()\n        except SystemExit as end:\n            assert not end.code, end.code\n"
        "        print('HEAVY', sorted({'torch', 'numpy', 'networkx', 'graphviz', 'pygraphviz'} & set(sys.modules)), flush=True)\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0\n"
    )
    assert done.returncode == 0, done.stderr
    return dict(one.split("\n", 1) for one in re.split("^HELP ", done.stdout, flags=re.MULTILINE)[1:])


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_help_and_version_import_nothing_heavy(helps, arguments):
    said = helps[" ".join(arguments)]
    assert said.splitlines()[-1] == "HEAVY []"
    assert "dynadiag" in said
    if arguments[0] in VERBS:  # each help has two examples
        assert len(re.findall(rf"^ *dynadiag {arguments[0]}\b", said.split("Examples:")[1], re.MULTILINE)) == 2


def test_reading_a_recording_imports_no_torch_and_nothing_that_few_recordings_need():
    """A pool of processes is for many ranks, a browser for `--open`: their imports took a tenth of `explain` of one log."""
    imports = "import sys, dynadiag.trace, dynadiag.report, dynadiag.render, dynadiag_cli.showing"
    done = run_python(f"{imports}; print(sorted(sys.modules.keys() & {{'torch', 'multiprocessing', 'subprocess'}}))")
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    "module", ["dynadiag.bench.inside.main", "dynadiag.capture.script_capture", "dynadiag.record.inside", "dynadiag.start.edited_program"]
)
def test_what_runs_a_script_leaves_the_import_of_torch_to_it(module):
    """A variable that the script sets first (OMP_NUM_THREADS, TORCHINDUCTOR_...) would come too late."""
    done = run_python(f"import sys, {module}; print('torch' in sys.modules)")
    assert done.stdout == "False\n", done.stderr
