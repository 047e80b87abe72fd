"""What to do about exceptions that compiled code raises, and about what it gets wrong without one: streams, gradients, CUDA graphs."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from dynadiag.advice.cuda_graphs import NUMBER_READ
from dynadiag.facts.lookups import first_graphs, is_from_text
from dynadiag.facts.statements import parsed_module
from dynadiag.facts.user_frames import normal_path, own_frame
from dynadiag.facts.wording import script_arguments, short_place
from dynadiag.model.location import Location
from dynadiag.model.report import Advice
from dynadiag.model.run import Frame, Run, SourceFunction
from dynadiag.source.function import parse_function
from dynadiag.source.line import dotted, parse_line
from dynadiag.source.tree import names_in, nodes_in

# `torch/_functorch/_aot_autograd/runtime_wrappers.py`, 2.11 to 2.15.
_CONSTRAINT = re.compile(r"You marked .* as dynamic but your code specialized it to be a constant")
# Seen on 2.11 and 2.15: where the first call gave a module its own parameters, later ones computed with them, whatever they gave.
FUNCTIONAL = "functional_call"
_VIEW_RETURNED = re.compile(
    r"Output \d+ of (\w+) is a view and its base or another view of its base has been modified inplace\. "
    r"This view was created inside a custom Function"
)
_PACKAGE = re.compile(r"/(?:site-packages|dist-packages)/([A-Za-z]\w*)(?:/|\.py$)")
_DOUBLE_BACKWARD = re.compile(r"does not currently support double backward")
# `torch/_library/custom_ops.py` (`CustomOpDef.__init__`, 2.11 to 2.15) and `torch/_subclasses/fake_impls.py` for operators made otherwise.
_NO_FAKE = re.compile(
    r"no fake impl registered for <CustomOpDef\((?P<custom>[\w.]+::\w+)\)>.*?(?:`(?P<name>\w+)\.register_fake`|$)", re.DOTALL
)
# `CUDAGraphNode` takes tensors and ints, no float made of a captured `.item()` (torch/_inductor/cudagraph_trees.py, 2.11 and 2.15).
_RECORDS_INPUTS = "_allocate_and_copy_recording_inputs"
_OF_STREAMS = re.compile(r"no fake impl registered for <CustomOpDef\(streams::\w+\)>")  # 2.11, of a backward
_NO_COMPILER = re.compile(r"\bInvalidCxxCompiler: No working C\+\+ compiler found")  # `torch/_inductor/exc.py`, 2.15
# Nothing of the compiler failed: the back end has no such name, the program asked for what cannot be.
_NO_REPRODUCER = frozenset(
    {"InvalidBackend", "ConstraintViolationError", "ResetRequired", "RecompileError", "RecompileLimitExceeded", "FailOnRecompileLimitHit"}
)
_COMPARE = Advice(
    slug="compare-with-eager",
    text="Run the program once with `TORCH_COMPILE_DISABLE=1` in its environment: that shows what eager does at this line.",
)

TRY_OUTSIDE = Advice(
    slug="try-outside",
    text=(
        "Put the `try` statement into a function of its own with `@torch.compiler.disable`: its operators then run eagerly, inside the "
        "`try`. The call breaks the graph; in a loop the whole function then runs eagerly."
    ),
    options=("torch.compiler.disable",),
)

CATCH_BOTH = Advice(
    slug="catch-both-errors",
    text="Where the program catches the AssertionError of this line, catch RuntimeError as well: `except (AssertionError, RuntimeError)`.",
)


def uncaught_advice(text: str, run: Run, raised_in: str = "") -> tuple[Advice, ...]:
    """What is known for this text of torch or for the function of torch's that raised, then how to see what eager does."""
    reads_number = raised_in.rpartition(".")[2] == _RECORDS_INPUTS and text.startswith("AssertionError")
    found = (NUMBER_READ,) if reads_number else (*_of_returned_view(text, run), *_chosen(text))
    if any(FUNCTIONAL in function.text for function in run.functions):  # it would run then, with wrong results
        return tuple(advice for advice in found if advice.slug != "backend-without-aot")
    return found


def failure_advice(text: str, kind: str, run: Run, frame: Frame) -> tuple[Advice, ...]:
    """What is known for the error of a compilation that failed, else how to get the smallest program that shows it."""
    if _CONSTRAINT.search(text):
        maybe = (
            "Mark it with `torch._dynamo.maybe_mark_dynamic` instead of `mark_dynamic`: the size is then compiled in as a constant, "
            "without an error."
        )
        keep = "Avoid decisions based on that size (a comparison with a number, a parameter of a fixed shape): it then stays dynamic."
        return Advice(slug="maybe-mark-dynamic", text=maybe), Advice(slug="keep-size-open", text=keep)
    if _OF_STREAMS.search(text):
        return (STREAMS_OUTSIDE,)
    if (missing := _NO_FAKE.search(text)) is not None:
        decorator = f"@{missing['name']}.register_fake" if missing["name"] else f'@torch.library.register_fake("{missing["custom"]}")'
        says = (
            f"Tell torch what `{missing['custom']}` returns: below the operator, decorate a function with the same arguments that "
            "returns an empty tensor of the right shape and dtype."
        )
        return (Advice(slug="register-fake", text=says, after=decorator),)
    if _NO_COMPILER.search(text):
        says = "Install a C++ compiler (g++), or name one that is there in the environment variable CXX: Inductor needs it on the CPU."
        return (Advice(slug="cxx-compiler", text=says),)
    if kind in _NO_REPRODUCER:
        return ()
    eager = (_COMPARE,) if kind == "TorchRuntimeError" else ()
    command = minify_command(run, frame) or ("dynadiag minify SCRIPT" if is_from_text(run) else None)
    layer = "if one graph fails on its own, also the compiler layer that fails"
    shows = f"`{command}` finds the smallest program that fails in this way; {layer}."
    return eager if command is None else (*eager, Advice(slug="minify", text=shows, follows=bool(eager)))


def caught_in_vain(traced: Sequence[Location], kind: str, run: Run) -> tuple[Advice, ...]:
    """What to do where code that Dynamo traced has a handler for the error that came out of it: Dynamo runs some functions itself while it
    traces (`importlib.metadata.version`), and what they raise ends the compilation (seen on 2.15).
    """
    for number in range(len(traced) - 1, 0, -1):
        place = traced[number]
        function = next(
            (source_function for source_function in (*run.functions, *run.library_functions) if _holds(source_function, place)), None
        )
        handler = None if function is None or place.line is None else _handler(function, place.line, kind)
        if function is None or handler is None:
            continue
        name = function.name.rpartition(".")[2]
        line = short_place(place)
        text = (
            f"`{name}` would catch this error ({handler}), but Dynamo runs the call at {line} itself while it traces, and lets the error "
            f"out. Call `{name}` once outside of compiled code, and use the value there."
        )
        return (Advice(slug="call-before", text=text),)
    return ()


def _holds(function: SourceFunction, place: Location) -> bool:
    last = function.line + function.text.count("\n")
    return function.file == place.file and place.line is not None and function.line <= place.line <= last


def _handler(function: SourceFunction, line: int, kind: str) -> str | None:
    """The `except` of the function in force at a line that surely catches an error of this name."""
    tree, row = parsed_module(function.text), line - function.line + 1
    for node in () if tree is None else nodes_in(tree):
        if isinstance(node, ast.Try) and node.body[0].lineno <= row <= (node.body[-1].end_lineno or 0):
            for handler in node.handlers:
                types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
                names = {"BaseException" if each is None else (dotted(each) or "").rpartition(".")[2] for each in types}
                known = getattr(builtins, kind, Exception)
                bases = {base.__name__ for base in known.__mro__} if isinstance(known, type) else set()
                if kind in names or names & bases:
                    return f"`except {ast.unparse(handler.type)}`" if handler.type is not None else "`except`"
    return None


def minify_command(run: Run, frame: Frame) -> str | None:
    """The command line of `dynadiag minify` for this run: the recorded script, else a captured graph; None without either."""
    target = script_arguments(run)
    if target:
        return shlex.join(("dynadiag", "minify", *target))
    if run.info.directory is None:
        return None
    graph = first_graphs(run).get(frame.id)
    if graph is None:
        return None
    return shlex.join(("dynadiag", "minify", f"{run.info.directory}#{graph.id}"))


def _of_returned_view(text: str, run: Run) -> Iterator[Advice]:
    """Autograd refuses a write on what a custom function, as compiled code is, returned as a view or as it was given.

    `check_inplace` of `torch/csrc/autograd` names the function, which is the user's own where it gives its input back.
    """
    if _VIEW_RETURNED.search(text) is None:
        return
    place = returned_input(text, run)
    if place is not None:
        name = (place.code or "").removeprefix("return ")
        yield Advice(
            slug="return-clone",
            text=f"Return a copy of the input from `{place.function}` ({short_place(place)}): compiled code cannot return an input as it "
            "is and write into it as well. The gradient is the same.",
            before=place.code,
            after=f"return {name}.clone()",
        )
        return
    for package, line in _calls_of_libraries(run):
        yield Advice(
            slug="library-in-eager",
            text=(
                f"Leave the call of {package} ({line}) out of compiled code: do not compile the function that calls it, or put the call "
                "into a function with `@torch.compiler.disable`. A module of yours that it is given can be compiled by itself."
            ),
            options=("torch.compiler.disable",),
        )


def returned_input(text: str, run: Run) -> Location | None:
    """Where the custom function that such an error names returns one of its inputs as it is."""
    said = _VIEW_RETURNED.search(text)
    names = [] if said is None else [said[1], "forward"]
    forward = next((function for function in run.functions if function.name.split(".")[-2:] == names), None)
    row, name = (0, "") if forward is None else next(_inputs_returned(forward.text), (0, ""))
    return Location(forward.file, forward.line + row - 1, ".".join(names), f"return {name}") if forward is not None and row else None


def _inputs_returned(text: str) -> Iterator[tuple[int, str]]:
    """The rows of a function that return an argument as it is, with its name."""
    function = parse_function(text)
    if function is None:
        return
    names = {argument.arg for argument in function.node.args.args[1:]}
    for node in nodes_in(function.node):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield node.lineno, node.value.id


def _calls_of_libraries(run: Run) -> Iterator[tuple[str, str]]:
    """The package of whose code most was compiled, and the line of the user's that calls it."""
    found: Counter[tuple[str, str]] = Counter()
    for frame in run.frames:
        package, own = _PACKAGE.search(normal_path(frame.file or "")), own_frame(frame.callers, run)
        if package is not None and package[1] != "torch" and own is not None:
            found[package[1], short_place(own)] += 1
    yield from (place for place, _ in found.most_common(1))


def _chosen(text: str) -> Iterator[Advice]:
    if _DOUBLE_BACKWARD.search(text):
        yield Advice(
            slug="gradient-inside",
            text=(
                "Take every gradient inside the compiled function with `torch.func.grad` (or `torch.func.grad_and_value`), nested for a "
                "gradient of a gradient: the `backward()` outside is then the only one that AOTAutograd sees."
            ),
        )
        yield Advice(
            slug="backend-without-aot",
            text='Compile this function with `backend="eager"`: Dynamo\'s graph then runs on plain autograd, which can do it.',
        )
        return
    yield _COMPARE


# What to change where compiled code runs on one CUDA stream what the program puts on several.

# Seen with the profiler on an H200, torch 2.11: both run on two streams again.
STREAMS_OUTSIDE = Advice(
    slug="streams-outside",
    text=(
        "Compile what runs on each stream as a function of its own, and put `with torch.cuda.stream(...)` and the waiting around its call, "
        "in code that is not compiled. A function with `@torch.compiler.disable` keeps its streams too; it runs eagerly."
    ),
)


# What to change where a compiled graph overwrites what its own backward needs.

NEW_TENSOR = Advice(
    slug="assign-new-tensor",
    text=(
        "Do not write into the tensor: assign a new one (`self.state = new` for `self.state.copy_(new)`, `self.n = self.n + 1` for "
        "`self.n += 1`). An argument or a global is returned instead, and assigned outside."
    ),
)


# What to change where an output of a CUDA graph is read after a later call of the graph has overwritten it.

# Each was tried on an H200, torch 2.11: the program raised before and ran afterwards. That of gradients is torch's own (2.15).
_STEPS = Advice(
    slug="mark-steps",
    text=(
        "If the calls belong to one step, call `torch.compiler.cudagraph_mark_step_begin()` once where each step begins, and not between "
        "them: what they return then lives until the next step."
    ),
    options=("torch.compiler.cudagraph_mark_step_begin",),
)
_GRADIENTS = Advice(
    slug="stable-gradients",
    text=(
        "Set `.grad` to None before each backward (`optimizer.zero_grad()`). To accumulate gradients, give each parameter a `.grad` of "
        "zeros before the first compiled backward, outside of the CUDA graphs."
    ),
)


def overwritten_advice(
    made: str | None, read: str | None, calls: Sequence[Location], *, is_gradient: bool, reads_own: bool
) -> tuple[Advice, ...]:
    """A copy outside of the compiled function, or longer steps; for state that the function itself keeps a buffer, for gradients their own.

    `made` and `read` are the lines that make the output and read it too late, `calls` the places that call the compiled function;
    `reads_own`: the line that reads is such a call.
    """
    if is_gradient:
        return (_GRADIENTS,)
    kept = _kept_by(made)
    if kept is not None:
        text = (
            f"`{kept}` keeps an output of the CUDA graph for the next call. Make it a buffer that is written in place "
            f"(`register_buffer`, and `{kept}.copy_(...)`), or put a copy in its place after each call, outside of the compiled function "
            "(`.clone()`)."
        )
        return (Advice(slug="state-in-buffer", text=text),)
    return _clone(read if reads_own else None, calls), _STEPS


def _clone(code: str | None, calls: Sequence[Location]) -> Advice:
    """The copy, shown as an edit where the statement that reads an output is a call which makes the next one."""
    lines = f" ({' and '.join(map(short_place, calls[:4]))})" if calls else ""
    text = (
        f"Keep a copy, made outside of the compiled function: `.clone()` behind each call whose result is read after the next call{lines}. "
        "A `clone` inside the function is overwritten as well."
    )
    after = None if code is None else _cloned(code)
    return Advice(slug="clone-output", text=text, before=None if after is None else code, after=after)


def _cloned(code: str) -> str | None:
    """`state = f(state)` with `.clone()` behind the call; None for a statement of another form."""
    statement = _assignment(code)
    target = None if statement is None else statement.targets[0]
    if statement is None or not isinstance(target, ast.Name) or not isinstance(statement.value, ast.Call):
        return None
    return f"{code}.clone()" if target.id in names_in(statement.value) else None


def _assignment(code: str | None) -> ast.Assign | None:
    """The statement of a line that assigns to one target."""
    line = parse_line(code)
    statement = line.tree.body[0] if line.tree is not None and line.complete and len(line.tree.body) == 1 else None
    return statement if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None


def _kept_by(code: str | None) -> str | None:
    """The attribute to which the line that makes the output assigns it: `self.state`."""
    statement = _assignment(code)
    target = None if statement is None else statement.targets[0]
    return ast.unparse(target) if isinstance(target, ast.Attribute) else None
