"""A difference as a pytest file that stands alone: only torch and pytest, the graph written from its rebuilt form. Each is tried once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynadiag.compare.calls import WEIGHTS
from dynadiag.compare.rounding import DEFAULT_TOLERANCE, TOLERANCE
from dynadiag.errors import NotRebuildableError, shorten
from dynadiag.files import read_small, write_inside
from dynadiag.fx.inputs import InputSpec, contiguous_stride, elements
from dynadiag.fx.script import TRUSTED, pieces
from dynadiag.fx.spelling import constant, dtype_text, sizes
from dynadiag.fx.written import checked
from dynadiag.parity.result import smallest, would_be
from dynadiag.parity.scenarios import Scenario
from dynadiag.parity.subject import Ready, torch_version

MARK = '"""Written by dynadiag parity:'
_IMPORTS = ("import os", "import subprocess", "import sys", "from torch.utils._pytree import tree_leaves")
_PROOF_S = 900.0


def emit_tests(graph: str, ready: Ready, found: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """A file for each scenario that differs: its number and the path, or why there is none. A test that passes here is not kept."""
    written = []
    for number in sorted({entry["scenario"] for entry in found["differences"]}):
        entry = smallest([item for item in found["differences"] if item["scenario"] == number])
        path = folder / f"test_parity_{graph}_{ready.plan.scenarios[number].kind}_{number}.py"
        why_not = _emit(graph, ready, number, found["tried"][number], entry, path)
        written.append({"scenario": number, "test": None if why_not else str(path), "why_not": why_not})
    return written


def _emit(graph: str, ready: Ready, number: int, tried: Mapping[str, Any], entry: Mapping[str, Any], path: Path) -> str | None:
    if ready.custom_operators:
        return f"it calls {ready.custom_operators[0]}, which only your own file registers"
    try:
        source = test_source(graph, ready, number, tried, entry)
        if not _may_be_replaced(path):
            return f"{path} exists and was not written by dynadiag parity"
        write_inside(path.parent, path.name, source)
    except NotRebuildableError as error:
        return f"the graph cannot be written: {error.message}"
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    if _fails(path):
        return None
    path.unlink(missing_ok=True)
    return "the test passed, so it was not kept"


def _may_be_replaced(path: Path) -> bool:
    try:
        return read_small(path, len(MARK)) == MARK.encode()
    except FileNotFoundError:
        return True
    except OSError:  # a link, a folder, a pipe
        return False


def _fails(path: Path) -> bool:
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_FORCE_DISABLE_CACHES"}
    try:
        done = subprocess.run([sys.executable, str(path)], capture_output=True, stdin=subprocess.DEVNULL, timeout=_PROOF_S, env=environment)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 1


def test_source(graph: str, ready: Ready, number: int, tried: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """The file's text. Raises NotRebuildableError for a graph without a spelling."""
    scenario = ready.plan.scenarios[number]
    specs = [_alone(spec, scenario, place) for place, spec in enumerate(ready.subject.rebuilt.inputs)]
    imports, body = pieces(ready.subject.rebuilt, specs, ready.subject.filling)
    imports |= {"import subprocess", "import sys"} if scenario.on_disk else set()
    name = f"test_{graph}_{scenario.kind}"
    title = shorten(would_be(tried, entry), 300).replace("\\", "/").replace('"', "'")
    head = [
        f"{MARK} {graph} {title}.",
        "",
        f"It fails with torch {torch_version()}.",
        '"""',
        "",
        "import os",
        *([] if scenario.on_disk else NO_CACHES),
    ]
    head += [*sorted(imports), _IMPORTS[-1], "", ""]
    call, check = _call(ready), _check(entry, ready)
    parts = [*head, *body, *_arrange(ready, scenario, int(tried["shift"])), *call, *check]
    main = CACHED if scenario.on_disk else PLAIN
    filled = main.replace("NAME", name).replace("CALLS", repr(list(scenario.calls))).replace("WRONG_CALL", str(int(entry["call"])))
    filled = filled.replace("BACKEND", _compile(ready))
    fixed = [*TRUSTED, "\n".join((*_IMPORTS, *NO_CACHES)), "\n".join(call), "\n".join(check), filled]
    return checked("\n".join(parts) + filled, trusted=fixed)


def _alone(spec: InputSpec, scenario: Scenario, place: int) -> InputSpec:
    pair = scenario.pair
    apart = pair is not None and place in (pair.first, pair.second) and "recorded" not in scenario.calls
    return replace(spec, storage=None) if apart else spec


def _compile(ready: Ready) -> str:
    dynamic = "" if ready.setting.dynamic is None else f", dynamic={ready.setting.dynamic}"
    return f"backend={constant(ready.setting.backend)}{dynamic}"


def _arrange(ready: Ready, scenario: Scenario, shift: int) -> list[str]:
    lines = ["def inputs(arranged, seed):", "    torch.manual_seed(seed)", "    made = make_inputs()"]
    if scenario.pair is None:
        return [*lines, "    return made", "", ""]
    input_spec, other = (ready.subject.rebuilt.inputs[place] for place in (scenario.pair.first, scenario.pair.second))
    size = max(elements(input_spec), shift + elements(other))
    filling = ready.subject.filling
    base = f"strided(({size},), (1,), {dtype_text(input_spec.dtype)}, positive={filling.positive}, integer={filling.integer})"
    first, second = f"made[{scenario.pair.first}]", f"made[{scenario.pair.second}]"
    views = f"    {first}, {second} = one.as_strided({_layout(input_spec)}, 0), other.as_strided({_layout(other)}, {shift})"
    return [
        *lines,
        '    if arranged == "same":',
        f"        {second} = {first}",
        '    elif arranged in ("overlap", "apart"):',
        f"        one = other = {base}",
        '        if arranged == "apart":',
        f"            other = {base}",
        f"    {views}",
        "    return made",
        "",
        "",
    ]


def _layout(spec: InputSpec) -> str:
    assert spec.shape is not None
    return f"{sizes(spec.shape)}, {sizes(spec.stride if spec.stride is not None else contiguous_stride(spec.shape))}"


def _call(ready: Ready) -> list[str]:
    grad = ready.subject.rebuilt.grad is not False
    casting = 'torch.autocast("cpu", dtype=torch.bfloat16, enabled=True)' if ready.setting.autocast else None
    contexts = ", ".join(name for name in (f"torch.set_grad_enabled({grad})", casting) if name is not None)
    return [*CALL.replace("CONTEXTS", contexts).strip("\n").splitlines(), "", ""]


def _check(entry: Mapping[str, Any], ready: Ready) -> Sequence[str]:
    aspect = entry["aspect"]
    if aspect == "raises":
        return ["def check(expected, got):", "    pass  # that the call raises nothing is enough", "", ""]
    if aspect == "aliasing":
        return [*ALIASING.replace("PAIR", repr(tuple(entry["name"].split(" and ")))).strip("\n").splitlines(), "", ""]
    seen = f"[{constant(entry['where'])}][{_position(entry, ready)}]"
    head = ["def check(expected, got):", f"    expected, got = expected{seen}, got{seen}"]
    if aspect == "values":
        head.append(f"    tolerance = {{{_tolerances()}}}.get(getattr(expected, 'dtype', None), {DEFAULT_TOLERANCE})")
    return [*head, *CHECKS[aspect].strip("\n").splitlines(), "", ""]


def _tolerances() -> str:
    return ", ".join(f"{dtype}: {value}" for dtype, value in TOLERANCE.items())


def _position(entry: Mapping[str, Any], ready: Ready) -> int:
    """Gradients are listed for the inputs that require one."""
    if entry["where"] != "gradient":
        return int(entry["position"])
    needing = [at for at, spec in enumerate(ready.subject.rebuilt.inputs) if spec.requires_grad]
    return needing.index(int(entry["position"]))


# The fixed parts of an emitted test.

# An entry made for other inputs would be found in the cache on disk, and another thing be tested.
NO_CACHES = ("", 'os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"', "")

CALL = f'''
def weights(part):
    """Fixed cotangents, different for neighbours."""
    return ({WEIGHTS.format("part")}).to(part.dtype)
'''
CALL += '''


def call(function, module, given):
    """All that a caller sees of one call."""
    torch.manual_seed(0)
    with CONTEXTS:
        needing = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
        needing = [one if one.is_leaf else torch.autograd.graph.get_gradient_edge(one) for one in needing]
        outputs = tree_leaves(function(*given))
        seen = {"output": outputs, "input": given, "attribute": [*module.parameters(), *module.buffers()]}
        seen["gradient"] = [None] * len(needing)
        parts = [one for one in outputs if isinstance(one, torch.Tensor) and one.grad_fn is not None]
        if needing and parts:
            seen["gradient"] = torch.autograd.grad(parts, needing, [weights(part) for part in parts], allow_unused=True)
    return seen
'''

ALIASING = '''
def relation(seen, names=PAIR):
    """How two tensors share memory: how far one begins behind the other."""
    one, other = (seen[name.split()[0]][int(name.split()[1])] for name in names)
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return "separate memory"
    return f"shared memory, {other.data_ptr() - one.data_ptr()} bytes apart"


def check(expected, got):
    assert relation(got) == relation(expected), (relation(got), relation(expected))
'''

CHECKS = {
    "values": """
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        assert isinstance(got, torch.Tensor) == isinstance(expected, torch.Tensor) and got == expected, (got, expected)
        return
    wide = torch.complex128 if expected.is_complex() else torch.float64
    got, expected = got.detach().to(wide), expected.detach().to(wide)
    finite = torch.isfinite(expected)
    assert torch.equal(torch.isfinite(got), finite), "not finite in other places"
    assert torch.equal(got[~finite].nan_to_num(), expected[~finite].nan_to_num()), "another infinity, or NaN"
    error = (got - expected)[finite].abs().square().sum().sqrt()
    size = expected[finite].abs().square().sum().sqrt()
    assert error <= tolerance * size + 1e-12, f"off by {error:g} of {size:g} (root of the sum of squares)"
""",
    "shape": "    assert got.shape == expected.shape, (got.shape, expected.shape)",
    "stride": """
    steps = [[step for size, step in zip(one.shape, one.stride()) if size > 1] for one in (got, expected)]
    assert steps[0] == steps[1], (got.stride(), expected.stride())
""",
    "dtype": "    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)",
    "layout": "    assert got.layout == expected.layout, (got.layout, expected.layout)",
    "requires_grad": "    assert got.requires_grad == expected.requires_grad, (got.requires_grad, expected.requires_grad)",
    "missing_gradient": "    assert (got is None) == (expected is None), (got, expected)",
}

PLAIN = """
def NAME():
    torch._dynamo.reset()
    eager, module = make_module(), make_module()
    compiled = torch.compile(module, BACKEND)
    for number, arranged in enumerate(CALLS):
        expected = call(eager, eager, inputs(arranged, number))
        got = call(compiled, module, inputs(arranged, number))
        if number == WRONG_CALL:
            check(expected, got)


if __name__ == "__main__":
    NAME()
"""

CACHED = '''
def one_process(arranged):
    """One call, compiled with the caches on disk."""
    module, eager = make_module(), make_module()
    expected = call(eager, eager, inputs(arranged, 0))
    return expected, call(torch.compile(module, BACKEND), module, inputs(arranged, 0))


def NAME(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_FORCE_DISABLE_CACHES"}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path)
    for arranged in CALLS:
        done = subprocess.run([sys.executable, __file__, arranged], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(*one_process(sys.argv[1]))
    else:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            NAME(folder)
'''
