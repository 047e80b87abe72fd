"""Cures for recompiles because of the value of a number."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

from dynadiag.changes.recompile_cause import CONFIG, Cause
from dynadiag.changes.recompile_containers import container_at_call
from dynadiag.changes.recompile_sizes import drop_dynamic_false
from dynadiag.facts.guard_sources import is_global
from dynadiag.facts.wording import listed
from dynadiag.model.report import Advice
from dynadiag.source.call_arguments import the_call
from dynadiag.source.changed_objects import counts_attribute
from dynadiag.source.imports import USUAL
from dynadiag.source.line import SourceLine, dotted, parse_line, root_of
from dynadiag.source.tree import ids_in, names_in, nodes_of

_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)$")
_ADDS = re.compile(r"\.(?:add|sub)_?$")
_INTEGER = re.compile(r"-?\d+$")


def value_advice(cause: Cause) -> Iterable[Advice]:
    """Cures for a number that was compiled in; whatever has no number's values is a variant of the program."""
    if not is_number(cause):
        return ()
    if ".param_groups[" in cause.source:
        if not is_learning_rate(cause) or cause.one_group is False:
            return ()
        unsure = "" if cause.one_group else "Where the optimizer has one group of parameters: "
        return (replace(advice, text=f"{unsure}{advice.text}") for advice in _learning_rate())
    if is_module_integer(cause):
        return _module_integer(cause)
    if cause.made_constant:
        return _as_factor(cause)
    if cause.dynamic_false and all(map(_INTEGER.match, cause.values)):
        return drop_dynamic_false(cause)
    return () if cause.dynamic is True else (*_counted_outside(cause), *condition_advice(cause))


def is_number(cause: Cause) -> bool:
    """Whether all values that the source had are numbers."""
    return bool(cause.values) and all(map(_NUMBER.match, cause.values))


def is_learning_rate(cause: Cause) -> bool:
    """Whether the number is the learning rate of one of torch's optimizers, which is the user's wherever it is read."""
    return cause.kind == "value" and is_number(cause) and re.search(r"\.param_groups\[\d+\]\[['\"]lr['\"]\]$", cause.source) is not None


def is_module_integer(cause: Cause) -> bool:
    """Whether torch says that this is an integer attribute of a module, which it compiles in."""
    return "allow_unspec_int_on_nn_module" in (cause.hint or "")


def _learning_rate() -> Iterable[Advice]:
    """The optimizers of torch read a tensor's value; other options of theirs must be numbers.

    Groups that take the default would share the tensor, and one with an `lr` of its own would have none.
    """
    text = (
        "The learning rate is a Python number that changes between the steps. Where the optimizer is created, pass it as a tensor "
        '(`lr=torch.tensor(0.1)` for `lr=0.1`); torch\'s schedulers write into that tensor, which `optimizer.defaults["lr"]` also holds. '
        'Where your own code sets it, write into it too (`group["lr"].fill_(value)` for `group["lr"] = value`); where it keeps or records '
        'the rate outside compiled code, take `float(group["lr"])`, and `float(rate)` of what `get_last_lr()` returns. It is then a '
        "float32, so last digits may differ. An optimizer that was given `foreach=True` or `fused=True` may refuse a tensor."
    )
    yield Advice(slug="lr-as-tensor", text=text)


def sides_of_integer(cause: Cause) -> int | None:
    """How many versions do for an integer attribute of a module that is a symbol; None where it has to be known.

    The option leaves those constant that torch reaches through a global (`G['net'].step`, torch 2.15), and all under `dynamic=False`.
    """
    if cause.kind != "value" or not is_module_integer(cause) or is_global(cause.raw_source) or cause.dynamic_false:
        return None
    function, name = None if cause.resumed else cause.function, cause.source
    if function is None and (function := cause.reader) is not None and function.node.args.args:
        name = f"{function.node.args.args[0].arg}.{cause.source.rpartition('.')[2]}"
    if function is None:
        return None
    return 1 if function.only_counts(name, sizes=True) else function.sides(name)


def _module_integer(cause: Cause) -> Iterable[Advice]:
    """An integer attribute of a module, which few versions serve once it is a symbol (`sides_of_integer`)."""
    sides = sides_of_integer(cause)
    if sides is None or not all(map(counts_attribute, cause.beside)):
        return
    option = f"{CONFIG}allow_unspec_int_on_nn_module"
    most = (
        f": then {sides + 1} versions are enough for all its values, one of them for each side of the conditions on it" if sides > 1 else ""
    )
    yield Advice(
        slug="unspec-int-on-module",
        text=(
            f"`{cause.source}` is an integer that an nn.Module holds, which torch treats as a constant. Let it become dynamic, before "
            f"the first call{most}."
        ),
        after=f"{option} = True",
        options=(option,),
    )


def _as_factor(cause: Cause) -> Iterable[Advice]:
    """`x.add(y, alpha=k)` compiles `k` in; as a factor it stays symbolic."""
    function = None if cause.library else cause.function
    call = None if function is None else function.only_call_with("alpha", cause.source)
    if function is None or call is None or len(call.keywords) != 1 or not call.args or not _ADDS.search(function.text(call.func)):
        return
    factor, given = call.keywords[0].value, [function.text(argument) for argument in call.args]
    number = function.text(factor) if isinstance(factor, ast.Name | ast.Attribute) else f"({function.text(factor)})"
    multiplied = given[-1] if isinstance(call.args[-1], ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"({given[-1]})"
    yield Advice(
        slug="number-as-operand",
        text=f"torch compiles each `alpha=` in as a constant. Multiply by it instead: `{cause.source}` then becomes dynamic.",
        before=function.text(call),
        after=f"{function.text(call.func)}({', '.join((*given[:-1], f'{multiplied} * {number}'))})",
    )


def _counted_outside(cause: Cause) -> Iterable[Advice]:
    """A count that the function keeps and does not read: `STATE["n"] += 1` belongs behind the call."""
    counted = None if cause.function is None or cause.resumed else cause.function.counted(cause.source)
    line, kept = cause.line, None if counted is None else container_at_call(cause, cause.source)
    if counted is None or kept is None or len(cause.entered) != 1 or not _ends_there(line) or _reads(line, kept):
        return
    text = f"`{cause.frame_name}` only counts with `{cause.source}`, and each count is compiled separately. Delete `{counted}` there, and"
    behind = counted.replace(cause.source, kept, 1)
    yield Advice(
        slug="count-outside",
        text=f"{text} count after every call, uncompiled ones included.",
        before=line.code,
        after=f"{line.code}\n{behind}",
    )


def _ends_there(line: SourceLine) -> bool:
    """Whether a line can be put behind this one that runs whenever it ran."""
    return the_call(line) is not None and isinstance(line.statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr)


def _reads(line: SourceLine, kept: str) -> bool:
    """Whether the line names the count beside the call, so that it may read it once the function was called."""
    inside = ids_in(the_call(line))
    return any(dotted(child) == kept.partition("[")[0] for child in line.nodes if id(child) not in inside)


def condition_advice(cause: Cause) -> Iterable[Advice]:
    """A function of Python's `math` on an argument, whose result the line uses in arithmetic: each value is compiled on its own."""
    imports = USUAL if cause.function is None else cause.function.imports
    line = parse_line(None if cause.origin is None else cause.origin.code, imports)
    known = cause.function is not None and cause.source in (cause.parameters or ()) and not cause.function.assigns(cause.source)
    if not known or " == " not in cause.text or any(isinstance(node, _QUESTIONS) for node in line.nodes):
        return
    calls = [node for node in line.nodes if _of_math(node, cause.source)]
    everywhere = () if cause.function is None else cause.function.math_calls(cause.source)
    alone = all(names_in(call) == {cause.source, "math"} for call in calls)
    if cause.function is None or len(cause.entered) != 1 or not (cause.float32 and cause.function.meet_tensors(everywhere)):
        return
    if calls and alone and len(everywhere) <= len(calls) and all(isinstance(line.parent(call), ast.BinOp) for call in calls):
        done, *others = [line.text(call) for call in calls]
        text = (
            f"`{done}` needs the value of `{cause.source}`, so each value is compiled separately. Compute `torch.tensor({done})` "
            f"before the call, pass it as one more argument, and use that in place of `{done}`."
        )
        text += f" Do the same with {listed([f'`{name}`' for name in others])}." if others else ""
        yield Advice(slug="math-outside", text=text)


def _of_math(node: ast.AST, source: str) -> bool:
    """Whether this is a call of `math` that reads the number."""
    called = isinstance(node, ast.Call) and root_of(node.func) == "math"
    return called and any(one.id == source for one in nodes_of(ast.Name, node))


_QUESTIONS = (ast.Compare, ast.If, ast.IfExp, ast.While, ast.Assert, ast.BoolOp)
