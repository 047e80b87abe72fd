"""The reproducer: one Python file that needs torch alone, short enough to read, ending in the failure itself or in an assertion."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import torch

from dynadiag.compare.calls import WEIGHTS
from dynadiag.compare.rounding import ADDED, DEFAULT_TOLERANCE, ELEMENTS_OFF, tolerance_of
from dynadiag.fx.building import group_sizes
from dynadiag.fx.script import GROUPS, group_sizes_text, module_source
from dynadiag.fx.written import checked
from dynadiag.reduce.core.failure import Failure
from dynadiag.reduce.graphs.candidate import Candidate, graphs_in, own_copy
from dynadiag.reduce.graphs.inputs import TensorInput
from dynadiag.reduce.graphs.observing import SAME_RANDOM, calls_of, configs_of
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.reduce.reproducer.graph_inputs import WIDTH, helpers, inputs_function
from dynadiag.render.sanitise import clean
from dynadiag.torch_compat.dynamo.backend import OptionFunction
from dynadiag.torch_compat.dynamo.compiling import config_path
from dynadiag.torch_compat.inductor.inner import inner_options

_LONGEST_STORY = 4000
_WATCH = "faulthandler.dump_traceback_later(30, exit=True)"


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the first lines say."""

    failure: Failure
    made_by: str
    versions: str
    story: str


def reproducer(candidate: Candidate, setting: Setting, header: Header, *, expect_failure: bool = True) -> str:
    """The source of the file. Raises NotRebuildableError for a function or a value that has no spelling."""
    classes, imports = module_source(_without_notes(own_copy(candidate.module)), "Repro")
    making = inputs_function(calls_of(candidate, setting), setting.default_dtype)
    helping, used = helpers(making)
    imports = imports | used
    of_backend, backend = _backend(setting)
    body = [*helping, *_groups(candidate, setting), *_surroundings(setting), *making, "", "", *backend, *_inner(setting)]
    body += _main(candidate, setting, header.failure, expect_failure=expect_failure)
    if header.failure.kind == "hang" and expect_failure:
        imports = imports | {"import faulthandler"}
    limit = _memory_limit(setting.memory_limit_mib or 0, candidate)
    if setting.memory_limit_mib is not None and "resource" in limit[-1]:
        imports = imports | {"import resource"}
    options = _options(candidate, setting)
    functions = [value for _, value in options if isinstance(value, OptionFunction)]
    configs = [line for function in functions if function.source is not None for line in (*function.source.rstrip().splitlines(), "", "")]
    configs += [f"{config_path(name)} = {value!r}{_why_set(name, setting)}" for name, value in options]
    needed = imports | of_backend | {"import torch"} | {f"import {config_path(name).split('.config.')[0]}.config" for name, _ in options}
    needed |= {"import torch._inductor.compile_fx"} if setting.inner else set()
    needed |= {f"import {option_function.module}" for option_function in functions if option_function.module is not None}
    opening = _docstring(header, expect_failure=expect_failure)
    parts = [*opening, "", *sorted(needed), "", *configs, *([""] if configs else []), "", *classes, "", "", *body, ""]
    fixed = [
        GROUPS,
        _check(candidate, header.failure),
        _WATCH,
        "\n".join(helping),
        "\n".join(_inner(setting)),
        _call_source(candidate, setting),
    ]
    fixed += limit
    # The source of a back end, or of a function that is an option, is the text of the script that ran a moment ago.
    own = [setting.backend_source or "", *(item.source for item in functions if item.source is not None)]
    paths = {config_path(name) for name, _ in options} | {repr(element) for element in functions}
    named = set() if isinstance(setting.backend, str) else {setting.backend.__name__}
    return checked("\n".join(parts), trusted=[*fixed, *own, *of_backend], chains=paths | named)


_DRAWS = re.compile(
    r"dropout|rand|bernoulli|multinomial|normal_?$|normal\.|uniform|exponential|geometric|cauchy|poisson|rrelu|gumbel|fractional_max_pool"
    r"|attention|lstm|gru|rnn"
)
"""Names of functions that may draw random numbers."""


def _options(candidate: Candidate, setting: Setting) -> list[tuple[str, Any]]:
    """The options that the file sets; that random numbers are those of eager only where the graph may draw some."""
    targets = [node.target for graph in graphs_in(candidate.module) for node in graph.graph.nodes]
    draws = any(_DRAWS.search(str(getattr(target, "__name__", target))) for target in targets)
    return [pair for pair in configs_of(candidate, setting) if draws or pair is not SAME_RANDOM]


def _why_set(name: str, setting: Setting) -> str:
    same = name == SAME_RANDOM[0] and setting.check != "raises"
    return "  # the random numbers of the uncompiled run, so that both can be compared" if same else ""


def _docstring(header: Header, *, expect_failure: bool) -> list[str]:
    title = header.failure.title() if expect_failure else "This close variant of the reproducer does not fail."
    kind = f"{header.failure.kind.replace('_', ' ')} {header.failure.when()}"
    lines = [title, "", f"Failure: {kind}." if expect_failure else f"The reproducer: {header.failure.title()}"]
    lines += [header.story, f"{header.made_by}; {header.versions}."]
    wrapped = [piece for line in lines for piece in (textwrap.wrap(_made_harmless(line), WIDTH) or [""])]
    return ['"""' + wrapped[0], *wrapped[1:], '"""']


def _made_harmless(line: str) -> str:
    """Text that cannot end a docstring, and does nothing to a terminal."""
    return clean(line, limit=_LONGEST_STORY).replace("\\", "/").replace('"', "'")


def _without_notes(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Without the user's file names, which mean nothing elsewhere; with the name of each function."""
    from dynadiag.fx.building import TARGET
    from dynadiag.reduce.graphs.candidate import graphs_in
    from dynadiag.torch_compat.dispatch.operators import printed_target

    for graph in graphs_in(module):
        for node in graph.graph.nodes:
            node.meta = {TARGET: node.meta[TARGET]} if TARGET in node.meta else {}
            if node.op == "call_function" and TARGET not in node.meta:
                name = printed_target(node.target)
                node.meta = {} if name is None else {TARGET: name}
    return module


# -- what surrounds the call


def _groups(candidate: Candidate, setting: Setting) -> list[str]:
    """The process groups that are left in the graph."""
    sizes = {name: setting.groups[name] for name in group_sizes(candidate.module) if name in setting.groups}
    return [*GROUPS.strip().splitlines(), "", "", f"make_process_groups({group_sizes_text(sizes)})", "", ""] if sizes else []


def _surroundings(setting: Setting) -> list[str]:
    lines = []
    if setting.default_dtype != "float32":
        lines.append(f"torch.set_default_dtype(torch.{setting.default_dtype})")
    if setting.matmul_precision != "highest":
        lines.append(f"torch.set_float32_matmul_precision({setting.matmul_precision!r})")
    if setting.deterministic:
        lines.append("torch.use_deterministic_algorithms(True)")
    if not setting.grad and not setting.inference:
        lines.append("torch.set_grad_enabled(False)")
    return [*lines, "", ""] if lines else []


def _backend(setting: Setting) -> tuple[set[str], list[str]]:
    """The imports of the script's own back end, and the rest of its source."""
    source = (setting.backend_source or "").strip()
    body = ast.parse(source).body
    imports: set[str] = set()
    gone: set[int] = set()
    for node in body:
        taken = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        alone = sum(statement.lineno in taken or statement.end_lineno in taken for statement in body) == 1
        if isinstance(node, ast.Import | ast.ImportFrom) and alone:
            imports.add(ast.unparse(node))
            gone.update(taken)
    lines: list[str] = []
    for number, line in enumerate(source.split("\n"), 1):
        is_gap = not line.strip() and (number - 1 in gone or not lines)
        if number in gone or is_gap:
            gone.add(number)
        else:
            lines.append(line)
    return imports, [*lines, "", ""] if lines else []


def _inner(setting: Setting) -> list[str]:
    """How inductor's inner compiler is called without `torch.compile`, which would take the graph through AOTAutograd again."""
    options = inner_options(setting.mode, setting.options) if setting.inner else {}
    if not setting.inner:
        return []
    lines = ["def compile_inner(model):", "    def call(*inputs):", "        graph = torch.fx.symbolic_trace(model)"]
    lines += [f"        with torch._inductor.config.patch({options!r}):"] if options else []
    made = "compiled = torch._inductor.compile_fx.compile_fx_inner(graph, list(inputs))"
    return [*lines, f"        {'    ' if options else ''}{made}", "        return compiled(list(inputs))", "", "    return call", "", ""]


def _compile_call(setting: Setting) -> str:
    if setting.inner:
        return "compile_inner(model)"
    backend = setting.backend if isinstance(setting.backend, str) else None
    parts = [f"backend={backend!r}" if backend is not None else f"backend={setting.backend_as or setting.backend.__name__}"]
    if setting.mode is not None:
        parts.append(f"mode={setting.mode!r}")
    if setting.options:
        parts.append(f"options={dict(setting.options)!r}")
    if setting.dynamic is not None:
        parts.append(f"dynamic={setting.dynamic}")
    return f"torch.compile(model, {', '.join(parts)})"


def _contexts(setting: Setting) -> list[str]:
    contexts = []
    if setting.autocast is not None:
        contexts.append(f"torch.autocast({setting.autocast[0]!r}, dtype=torch.{setting.autocast[1]})")
    if setting.inference:
        contexts.append("torch.inference_mode()")
    return contexts


def _main(candidate: Candidate, setting: Setting, failure: Failure, *, expect_failure: bool) -> list[str]:
    """The call without the compiler, the call with it, and what shows the failure."""
    compares = setting.check != "raises"
    call = _call_source(candidate, setting)
    lines = [*(_check(candidate, failure).splitlines() if compares else []), *call.splitlines(), "", ""]
    main = ["model = Repro()", f"compiled = {_compile_call(setting)}"]
    if failure.kind == "hang" and expect_failure:
        main = [f"{_WATCH}  # it hangs: show where, and end", *main]
    if setting.memory_limit_mib is not None:
        main += _memory_limit(setting.memory_limit_mib, candidate)
    main.append("expected = run(model)  # passes")
    main.append("actual = run(compiled)" + ("" if compares else "  # fails" if expect_failure else "  # passes too"))
    if compares:
        main += _comparison(candidate, setting, failure)
    contexts = _contexts(setting)
    if contexts:
        main = [f"with {', '.join(contexts)}:", *(f"    {line}" if line else line for line in main)]
    return [*lines, *main]


def _call_source(candidate: Candidate, setting: Setting) -> str:
    """The functions that call the graph."""
    call = _synchronised(_CALL_BACKWARD if setting.backward else _CALL_INPUTS if setting.check == "mutation" else _CALL, candidate)
    if setting.writes:
        head, _, result = call.rpartition("\n    return ")
        call = f"{head}\n    results = {result}{_WRITE}\n    return results"
    calls = calls_of(candidate, setting)
    if len(calls) > 1:
        call = call.replace("def run(function):", "def run_once(function, call):").replace("make_inputs()", "make_inputs(call)")
        modes = [setting.grad if item.grad is None else item.grad for item in calls]
        call += _CALLS.format(len(calls)) if len(set(modes)) == 1 else _CALLS_IN_MODES.format(tuple(modes))
    return call


def _memory_limit(limit_mib: int, candidate: Candidate) -> list[str]:
    if "cuda" in candidate.text:
        return [
            f"limit = torch.cuda.memory_reserved() + ({limit_mib} << 20)  # {limit_mib} MiB besides what the process has now",
            "torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties().total_memory)",
        ]
    return [
        'pages = int(open("/proc/self/statm").read().split()[0])',
        f"limit = pages * resource.getpagesize() + ({limit_mib} << 20)  # {limit_mib} MiB besides what the process has now",
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))",
    ]


def _synchronised(call: str, candidate: Candidate) -> str:
    """The call with a wait for the GPU, which tells of its errors only then."""
    if "cuda" not in candidate.text:
        return call
    head, _, result = call.rpartition("\n    return ")
    waiting = f"{head}\n    results = {result}\n    torch.cuda.synchronize()"
    return f"{waiting}\n    return results"


def _comparison(candidate: Candidate, setting: Setting, failure: Failure) -> list[str]:
    """Each value is compared; the one that is too far from eager with the error that was measured to be allowed for it."""
    usual = max((_USUAL_ERROR.get(dtype, _DEFAULT_ERROR) for dtype in _dtypes(candidate)), default=_DEFAULT_ERROR)
    found = re.search(r"^(result|input) (\d+): off by .* allowed ([\d.e+-]+)", failure.detail)
    added = re.search(rf"^input (\d+): {ADDED} is off by .* allowed ([\d.e+-]+)", failure.detail)
    if added is not None and len(calls_of(candidate, setting)) == 1:
        end = len(candidate.inputs) - int(added[1])
        return [f"check_added({added[1]}, make_inputs()[{added[1]}], expected[-{end}], actual[-{end}], {added[2]})"]
    if found is None:
        return ["for position, (right, got) in enumerate(zip(expected, actual)):", f"    check(position, right, got, {usual})"]
    calls = len(calls_of(candidate, setting))
    behind = "len(expected)" if calls == 1 else f"len(expected) // {calls}"
    at = found[2] if found[1] == "result" else f"{behind} - {len(candidate.inputs) - int(found[2])}"
    position = "position" if calls == 1 else f"position % ({behind})"
    return [
        "for position, (right, got) in enumerate(zip(expected, actual)):",
        f"    # Rounding explains at most {found[3]} of its size: measured against float64 and against runs on slightly changed inputs.",
        f"    check(position, right, got, {found[3]} if {position} == {at} else {usual})",
    ]


def _dtypes(candidate: Candidate) -> list[torch.dtype]:
    return [input_.dtype for input_ in candidate.inputs if isinstance(input_, TensorInput) and input_.dtype.is_floating_point]


def _check(candidate: Candidate, failure: Failure) -> str:
    """The function that compares; where single elements are wrong it looks at each."""
    if ADDED in failure.detail:
        return f"{_CHECK_ADDED}{_CHECK_HELPERS}"
    if ELEMENTS_OFF not in failure.detail:
        return _CHECK_HELPERS
    of_one = max((tolerance_of(dtype) for dtype in _dtypes(candidate)), default=DEFAULT_TOLERANCE)
    return f"{_CHECK_HELPERS.rstrip()}\n{_CHECK_ELEMENTS.format(of_one)}\n\n"


# What a value may be off by, relative to its size, for which nothing was measured.
_USUAL_ERROR = {torch.float64: 1e-7, torch.bfloat16: 2e-2, torch.float16: 4e-3}
_DEFAULT_ERROR = 1e-4
_CALLS = """


def run(function):
    return [value for call in range({}) for value in run_once(function, call)]"""
_CALLS_IN_MODES = """


def run(function):
    values = []
    for call, grad in enumerate({}):
        with torch.set_grad_enabled(grad):
            values += run_once(function, call)
    return values"""
_CALL = """def run(function):
    torch.manual_seed(0)
    return list(function(*make_inputs()))"""

_WRITE = """
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad and not result.is_leaf:
            result.mul_(2)  # the program writes into a result of the call"""

_CALL_INPUTS = '''def run(function):
    """The results, and the inputs as the call left them."""
    inputs = make_inputs()
    torch.manual_seed(0)
    return list(function(*inputs)) + inputs'''

_CALL_BACKWARD = f'''def run(function):
    """The results and the gradients of the inputs."""
    inputs = make_inputs()
    torch.manual_seed(0)
    results = list(function(*inputs))
    loss = 0
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad:
            weight = {WEIGHTS.format("result")}
            loss = loss + (result.double() * weight).sum()
    wanted = [one for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad]
    if not isinstance(loss, torch.Tensor):
        return results + [None] * len(wanted)
    return results + list(torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else [])'''.replace(
    "WEIGHTS", WEIGHTS.format("result")
)

_CHECK_HELPERS = '''def check(position, right, got, allowed):
    """Fail when the compiled result is further from the uncompiled one than rounding explains; `allowed` is relative to its size."""
    if not isinstance(right, torch.Tensor):
        assert right is got or right == got or right != right, f"wrong result {position}: {got} instead of {right}"
        return
    assert isinstance(got, torch.Tensor), f"wrong result {position}: {got} instead of a tensor"
    assert right.shape == got.shape and right.dtype == got.dtype, f"wrong result {position}: a different shape or dtype"
    right, got = right.detach(), got.detach()
    if not right.dtype.is_floating_point and not right.dtype.is_complex:
        assert torch.equal(right, got), f"wrong result {position}: different integers or booleans"
        return
    finite = torch.isfinite(right) & torch.isfinite(got)
    same = finite | (right == got) | (right.isnan() & got.isnan())
    assert same.all(), f"wrong result {position}: NaN or infinity differs from the uncompiled run"
    wide = torch.complex128 if right.is_complex() else torch.float64
    right, got = right.to(wide)[finite], got.to(wide)[finite]
    error, size = ((got - right).abs().square().mean().sqrt(), right.abs().square().mean().sqrt()) if right.numel() else (0, 0)
    assert error <= allowed * size, f"wrong result {position}: error {float(error):.3g} at size {float(size):.3g}"


'''
_CHECK_ADDED = '''def check_added(position, before, right, got, allowed):
    """Fail when what the compiled call adds to an input is not what the uncompiled one adds, by more than `allowed` of that."""
    before, right, got = (value.detach().double() for value in (before, right, got))
    added = torch.maximum((right - before).abs(), (got - before).abs())
    off = ((got - right).abs() / added)[added > 0].median()
    assert off <= allowed, f"wrong input {position}: what is added to it is off by {float(off):.3g} of that"


'''
_CHECK_ELEMENTS = """    wrong = (got - right).abs() > {} * (right.abs() + size)
    assert not wrong.any(), f"wrong result {{position}}: {{int(wrong.sum())}} of {{wrong.numel()}} elements are off by more than rounding"
"""
