"""What to change about a mutation: one rule a code, only where the line itself shows the change. Each is tried by a test.

What can be done otherwise depends on what the rest of the program needs, which no recording shows: the page of the code says it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from dynadiag.advice.parity import undeclared_write
from dynadiag.facts.cuda_graphs import caches_the_decision
from dynadiag.facts.guard_sources import stripped
from dynadiag.facts.lookups import process_of
from dynadiag.facts.user_frames import is_own_file, of_last_run
from dynadiag.model import codes
from dynadiag.model.location import Location
from dynadiag.model.report import Advice, Mutation
from dynadiag.model.run import Process, Run
from dynadiag.source.changed_objects import changed_objects, replaces
from dynadiag.source.line import SourceLine, dotted
from dynadiag.source.memory import has_other_name, is_new
from dynadiag.source.place import function_around, line_at
from dynadiag.source.writes import is_function_form, written_tensor

_Rule = Callable[[Mutation, SourceLine], tuple[Advice, ...]]
# Attributes of `self` and global variables: they live from call to call. What is passed in may be another tensor each time.
_KEPT_SOURCE = re.compile(r"(?:L\['(?P<self>self)'\]|G\['(?P<root>\w+)'\])(?P<rest>(?:\.(?!_modules|_parameters|_buffers)\w+)*)")
_MARK = "torch._dynamo.mark_static_address"
# Tried on torch 2.11, on a CPU and an H200. One run without the caches writes none: the next one takes the old code again.
_COMPILED_ANEW = Advice(
    slug="compiled-anew",
    text=(
        "Delete torch's cache on disk once (the folder that `TORCHINDUCTOR_CACHE_DIR` names, else `torchinductor_<user>` in the temporary "
        "folder), or always run with `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1`: the mark then counts."
    ),
)


def mutation_advice(mutation: Mutation, run: Run) -> tuple[Advice, ...]:
    """The changes that end what this mutation costs; empty for one that costs nothing, and where none is certain (`why_nothing`)."""
    rule = _RULES.get(mutation.code)
    frame = run.frame(mutation.frame)
    library = frame is not None and frame.file is not None and not is_own_file(frame.file, run)
    process = None if frame is None else process_of(run, frame.key.process)
    if mutation.code == codes.STATIC_INPUT and _was_skipped(mutation) and caches_the_decision(process):
        return (_COMPILED_ANEW,)
    if rule is None or _is_free(mutation):
        return ()
    if rule is _kept_tensor and (library or not _was_there_first(mutation, run) or _is_replaced(mutation, run)):
        return ()
    if mutation.code == codes.WRITTEN_THROUGH_DATA and mutation.frame in _frames_with_backward(run):
        return ()  # autograd sees a write under `no_grad`, and refuses a backward pass that needs the old value
    if mutation.code == codes.AUTOGRAD_REFUSED_WRITE and not _written_here_only(mutation, run):
        return ()  # out of place, the caller or another name no longer gets the new values
    return tuple(_beyond_the_cache(one, mutation, process) for one in rule(mutation, _line(mutation, run)))


def _beyond_the_cache(advice: Advice, mutation: Mutation, process: Process | None) -> Advice:
    """The mark of an address, with what makes a torch heed it that has this graph in its cache on disk."""
    if _MARK not in advice.options or not _was_skipped(mutation) or not caches_the_decision(process):
        return advice
    again = (
        "Then delete torch's cache on disk once (`TORCHINDUCTOR_CACHE_DIR`, else `torchinductor_<user>` in the temporary folder): code "
        "from there is skipped as before, marked or not."
    )
    return replace(advice, text=f"{advice.text} {again}")


def _was_skipped(mutation: Mutation) -> bool:
    return any(effect["kind"] == "cudagraph_skip" and effect["basis"] == "observed" for effect in mutation.effects)


@of_last_run
def _frames_with_backward(run: Run) -> frozenset[str]:
    return frozenset(graph.frame for graph in run.graphs if graph.kind in ("aot_joint", "aot_backward"))


def _was_there_first(mutation: Mutation, run: Run) -> bool:
    """Whether the first version of the code writes it too: else it may have been no tensor then, such as a sum that begins with 0."""
    frame = run.frame(mutation.frame)
    return frame is None or _first_compilations(run).get(frame.key[:3]) in (None, mutation.frame, *mutation.frames)


def _is_replaced(mutation: Mutation, run: Run) -> bool:
    """Whether compiled code puts another object in the tensor's place: `self.s = torch.stack(...)`, while `self.s[i] = x` only writes it.

    The tensor that the program made first is then not the one that is written.
    """
    written = stripped(mutation.input)
    owner, _, name = written.rpartition(".")
    kept = _KEPT_SOURCE.fullmatch(mutation.input)
    name = name if owner or kept is None else kept["root"] or name
    changes = (change for changes in changed_objects(run).values() for change in changes)
    return any(source in (owner or written, written) and replaces(name, line) for source, line in changes)


@of_last_run
def _first_compilations(run: Run) -> Mapping[tuple[int, int, int | None], str]:
    """By process, epoch and torch's number of the code: its first version that has a graph or ended at a break."""
    found: dict[tuple[int, int, int | None], str] = {}
    for frame in run.frames:
        if frame.outcome in ("compiled", "broke"):
            found.setdefault(frame.key[:3], frame.id)
    return found


def _written_here_only(mutation: Mutation, run: Run) -> bool:
    """Whether the tensor that the line writes surely is the function's own: made there, and with no other name up to the line."""
    site, line = _own_site(mutation), _line(mutation, run)
    place = None if site is None else function_around(run, site.file, site.line)
    if place is None or not line.code:
        return False
    call, statement = line.only_call(), line.statement
    target = written_tensor(call) if call is not None else statement.target if isinstance(statement, ast.AugAssign) else None
    name = None if target is None else dotted(target)
    if name is None or not place.is_local(name) or has_other_name(place, name):
        return False
    return all(is_new(place, expression) for expression in place.values(name))


def why_nothing(mutation: Mutation) -> str | None:
    """Why there is no advice about this mutation, and where the ways out are described; None where it needs none."""
    if mutation.advice or _is_free(mutation):
        return None
    return f"what else depends on this write is not recorded (`dynadiag rule {mutation.code}` shows possible changes)"


def _is_free(mutation: Mutation) -> bool:
    return mutation.worst in (None, "free") and mutation.code != codes.UNDECLARED_WRITE


def _line(mutation: Mutation, run: Run) -> SourceLine:
    """The user's own line of the first write, empty when it is in a library."""
    where = _own_site(mutation)
    return line_at(where, run)


def _own_site(mutation: Mutation) -> Location | None:
    """The place of the first write that is the user's own."""
    site = next((site for site in mutation.sites if site.get("own")), {})
    file, line, code = site.get("file"), site.get("line"), site.get("code")
    if not isinstance(file, str) or not isinstance(code, str):
        return None
    return Location(file, line if isinstance(line, int) else None, None, code)


def _kept_tensor(mutation: Mutation, line: SourceLine) -> tuple[Advice, ...]:
    if mutation.input.endswith(".grad") and any("compiled autograd passes it" in effect["detail"] for effect in mutation.effects):
        text = "Clear the gradients before backward (zero_grad(set_to_none=True)): it then makes new ones and adds to none."
        return (Advice(slug="clear-gradients", text=text, after="optimizer.zero_grad(set_to_none=True)"),)
    kept = _KEPT_SOURCE.fullmatch(mutation.input)
    if kept is None or (kept["self"] and not kept["rest"]) or mutation.input.endswith(".grad"):  # backward makes that, no line of the user
        return ()
    name = f"{kept['self'] or kept['root']}{kept['rest']}"
    text = f"Declare once, where {name} is created, that it stays the same tensor; CUDA graphs then write it in place."
    return (Advice(slug="static-address", text=text, after=f"{_MARK}({name})", options=(_MARK,)),)


def _without_gradient(slug: str, text: str) -> _Rule:
    def rule(mutation: Mutation, line: SourceLine) -> tuple[Advice, ...]:
        after = under_no_grad(line)
        return () if after is None else (Advice(slug=slug, text=text, before=line.code, after=after),)

    return rule


def _backend(mutation: Mutation, line: SourceLine) -> tuple[Advice, ...]:
    text = "Let the back end keep input mutations in its graph."
    return (Advice(slug="keep-mutations", text=text, after="aot_autograd(fw_compiler=..., keep_inference_input_mutations=True)"),)


def _autograd(mutation: Mutation, line: SourceLine) -> tuple[Advice, ...]:
    after = out_of_place(line)
    text = "Write out of place: autograd still needs the old value; eager fails as well."
    return () if after is None else (Advice(slug="keep-the-old-value", text=text, before=line.code, after=after),)


def _undeclared(mutation: Mutation, line: SourceLine) -> tuple[Advice, ...]:
    op = next((str(site["op"]) for site in mutation.sites if site.get("op")), "the operator")
    return (undeclared_write(op, mutation.input),)


_RULES: Final[Mapping[str, _Rule]] = {
    codes.INPUT_WITHOUT_ADDRESS: _kept_tensor,
    codes.WRITTEN_THROUGH_DATA: _without_gradient(
        "no-grad-instead-of-data",
        "Write the tensor itself under torch.no_grad() instead of through .data or .detach(): the write then stays in the graph.",
    ),
    codes.LEAF_WRITTEN: _without_gradient("leaf-no-grad", "Put the write under torch.no_grad(): eager refuses this line too."),
    codes.BACKEND_KEEPS_NO_WRITES: _backend,
    codes.AUTOGRAD_REFUSED_WRITE: _autograd,
    codes.UNDECLARED_WRITE: _undeclared,
}


# Rewrites of a line that mutates: out of place, under no_grad, without `.data`.


def out_of_place(line: SourceLine) -> str | None:
    """`x = x.mul(2)` for `x.mul_(2)`, `x = torch.relu(x)` for `torch.relu_(x)`, `x = x + 1` for `x += 1`.

    None for what cannot be rewritten so on one line, and where the tensor written is not the name in front.
    """
    call = line.only_call()
    if call is not None and any(keyword.arg == "out" for keyword in call.keywords):
        return _without_out(line, call)
    if call is not None and isinstance(call.func, ast.Attribute):
        return _method(line, call)
    statement = line.statement
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name | ast.Attribute):
        target = _name_of_a_tensor(statement.target)
        whole = f"{target} {_OPERATORS[type(statement.op)]}= {line.text(statement.value)}" if type(statement.op) in _OPERATORS else None
        return (
            f"{target} = {target} {_OPERATORS[type(statement.op)]} {_bracketed(line, statement.value)}"
            if target is not None and whole == line.code
            else None
        )
    return None


def _without_out(line: SourceLine, call: ast.Call) -> str | None:
    """`y = torch.add(x, 1)` for `torch.add(x, 1, out=y)`."""
    out = next(keyword for keyword in call.keywords if keyword.arg == "out")
    target = _name_of_a_tensor(out.value)
    parts = [line.text(argument) for argument in (*call.args, *(keyword for keyword in call.keywords if keyword is not out))]
    return f"{target} = {line.text(call.func)}({', '.join(parts)})" if target is not None else None


_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**"}


def _bracketed(line: SourceLine, value: ast.expr) -> str:
    text = line.text(value)
    return text if isinstance(value, ast.Name | ast.Constant | ast.Call | ast.Attribute | ast.Subscript) else f"({text})"


def _method(line: SourceLine, call: ast.Call) -> str | None:
    """Every method of a chain loses its underscore: `x.mul_(2).add_(1)` is `x = x.mul(2).add(1)`."""
    text: str = line.code
    node: ast.AST | None = call
    changed = False
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name in _NO_FUNCTIONAL_FORM or name.startswith("_") or (is_function_form(node) and not _has_pure_twin(node)):
            return None
        if not name.endswith("_") or name.endswith("__"):
            return None  # `x.t().mul_(2)` writes what `t()` returns: `x = x.t().mul(2)` would be another tensor
        if f".{name}(" not in text:
            return None  # `relu_(x)` of `from torch import relu_`: the name of its twin may not be there
        text = text.replace(f".{name}(", f".{name[:-1]}(", 1)
        changed, node = True, written_tensor(node)
    target = None if node is None else _name_of_a_tensor(node)
    return f"{target} = {text}" if changed and target is not None else None


def _name_of_a_tensor(node: ast.AST) -> str | None:
    """The dotted name, unless its last part makes another tensor each time it is read: it cannot be assigned."""
    name = dotted(node)
    return None if name is None or ("." in name and name.rpartition(".")[2] in _VIEWS) else name


_VIEWS = frozenset(("data", "grad", "T", "mT", "H", "mH", "real", "imag"))


def _has_pure_twin(call: ast.Call) -> bool:
    """Whether the function without its underscore computes the same: not so for `torch.nn.init`, and operators name their overload last."""
    owner = dotted(call.func.value) or "" if isinstance(call.func, ast.Attribute) else ""
    return "init" not in owner.split(".") and ".ops" not in f".{owner}"


# Methods of torch.Tensor without a twin that gives a new tensor (torch 2.15), and some whose twin does something else.
_NO_FUNCTIONAL_FORM = frozenset(
    (
        "apply_", "bernoulli_", "cauchy_", "copy_", "detach_", "exponential_", "fill_", "fill_diagonal_", "geometric_", "log_normal_",
        "map_",
        "map2_", "normal_", "random_", "requires_grad_", "resize_", "resize_as_", "set_", "share_memory_", "sparse_resize_", "uniform_",
        "zero_", "embedding_renorm_", "rename_", "swap_tensors",
    )
)  # fmt: skip


def under_no_grad(line: SourceLine) -> str | None:
    """The line without `.data` and `.detach()` on what it writes, under `with torch.no_grad():`; None when nothing of it is written so."""
    text = line.code
    if line.tree is None or "\n" in text or line.statement is None:
        return None
    shorter = text.replace(".data", "") if ".data" in text and ".data =" not in text else text
    return f"with torch.no_grad():\n    {shorter}" if shorter and (shorter != text or line.only_call() is not None) else None
