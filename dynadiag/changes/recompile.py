"""Cures for recompiles because of sizes, lengths, keys and the values of numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

from dynadiag.changes.kinds import IMPORTS_TORCH, SETS_OPTION, Kind
from dynadiag.changes.recompile_cause import CONFIG, Cause
from dynadiag.facts.guard_sources import dimension, is_global
from dynadiag.facts.wording import listed, short_place
from dynadiag.model.report import Advice
from dynadiag.source.call_arguments import the_call
from dynadiag.source.changed_objects import counts_attribute
from dynadiag.source.imports import USUAL
from dynadiag.source.line import SourceLine, dotted, parse_line, root_of
from dynadiag.source.tree import ids_in, names_in, nodes_of
from dynadiag.source.uses import python_needs


def size_advice(cause: Cause) -> Iterable[Advice]:
    """Another size than the one that was compiled for; the sizes 0 and 1 are compiled on their own, whatever is marked."""
    if {"0", "1"} & set(cause.values):
        return ()
    if cause.on_parameter or cause.parameter is not None:
        return _parameter_shapes(cause)
    if cause.code.dynamic_false:
        return drop_dynamic_false(cause)
    return _marked(cause)


def _parameter_shapes(cause: Cause) -> Iterable[Advice]:
    # The second is asked first for parameters of torch's own modules (`tensor_always_has_static_shape`, `_dynamo/utils.py`).
    options = (f"{CONFIG}force_parameter_static_shapes", f"{CONFIG}force_nn_module_property_static_shapes")
    named, given = cause.parameter, dimension(cause.source)
    if named is None or (given is not None and given[0] == named):
        text = f"`{cause.source}` is a size of a parameter, which torch keeps static."
    else:
        text = f"`{named}` is a parameter, whose sizes torch keeps static, and `{cause.source}` is one of them."
    text = f"{text} Allow dynamic parameter sizes before the first call."
    passed = None if named is None else cause.code.passed(named)
    if passed is not None:
        text += f" Passing `{passed.text}.detach()` does the same where the call computes no gradient of it."
    yield Advice(
        slug="parameter-shapes",
        text=text,
        after="\n".join(f"{option} = False" for option in options),
        options=options,
    )


def drop_dynamic_false(cause: Cause) -> Iterable[Advice]:
    """What every compilation of the function was told keeps each value apart; torch makes dynamic what has changed once.

    Not where Python needs the value, so that each is compiled apart all the same, or where it is not known: without the source.
    """
    known = cause.code.name == "<lambda>" if cause.function is None else not python_needs(cause.function, cause.source)
    if len(cause.values) > 2 and known:
        text = "`dynamic=False` recompiles for every size and integer. Remove it: torch then makes what changed dynamic."
        yield Advice(slug="drop-dynamic-false", text=text)


def _marked(cause: Cause) -> Iterable[Advice]:
    """All dimensions that vary marked on the line before the call, if torch made them dynamic at their first change.

    Established: what torch made dynamic then it can make dynamic in the first call, and the line shows which objects these are. A mark on
    one size alone ends nothing where another one is tied to it, such as that of a mask. No tensor is marked that another compiled function
    was given before: in the next round that one would get the same tensor marked, and be compiled once more.
    """
    if cause.dynamic is not True or cause.code.stays >= cause.code.recompiles or dimension(cause.source) not in cause.code.varying:
        return
    given = [cause.code.passed(tensor) for tensor, _ in cause.code.varying]
    found = [argument for argument in given if argument is not None]
    others = [[cause.code.passed(tensor, at) for tensor, _ in cause.code.varying] for at in cause.code.calls.entered[1:]]
    same = all(item is not None and item.text == first.text for line in others for item, first in zip(line, found, strict=False))
    if len(found) < len(given) or not same or (others and not all(element.is_name for element in found)):
        return
    if any(entry.is_name and re.split(r"[.\[]", entry.text, maxsplit=1)[0] in cause.code.calls.passed_before for entry in found):
        return
    marks = sorted(zip(found, (index for _, index in cause.code.varying), strict=True), key=lambda mark: (mark[0].node.col_offset, mark[1]))
    line, told = cause.code.line, [f"dimension {index} of `{one.text}`" for one, index in marks]
    said = f"{told[0]} varies" if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]} vary"
    made = {one.name: one for one in found if not one.is_name}
    first = (
        *(f"{name} = {one.text}" for name, one in made.items()),
        *(f"torch._dynamo.maybe_mark_dynamic({one.name}, {i})" for one, i in marks),
    )
    yield Advice(
        slug="mark-dynamic",
        text=f"Say before {_where(cause)} that {said}, so the first version is dynamic already.",
        before=line.code,
        after="\n".join((*first, line.replaced_all((one.node, name) for name, one in made.items()))),
    )


def _where(cause: Cause) -> str:
    """The calls that the marks belong before: where they are, when that is not the one line that the finding shows."""
    if len(cause.code.calls.entered) > 1:
        return f"each of the calls at {listed([short_place(location) for location in cause.code.calls.entered])}"
    (only,) = cause.code.calls.entered
    return "the call" if only.is_same_line(cause.code.calls.shown) else f"the call at {short_place(only)}"


def length_advice(cause: Cause) -> Iterable[Advice]:
    """Another number of elements than was compiled for."""
    name = cause.source.removeprefix("len(").removesuffix(")")
    yield from _appended(cause, name)
    yield from _joined(cause, name)
    yield from _items(cause, name)


def _items(cause: Cause, name: str) -> Iterable[Advice]:
    """A list of which the function reads only some items: these alone as arguments."""
    known = not cause.code.resumed and name in (cause.code.calls.parameters or ())
    items = cause.function.items_read(name) if known and cause.function is not None else ()
    if not 0 < len(items) <= _MOST_ITEMS:
        return
    one = len(items) == 1
    text = (
        f"`{cause.code.name}` reads only {' and '.join(f'`{item}`' for item in items)} of this list, but torch also guards its length. "
        f"Give it {'a parameter for this item' if one else 'parameters for these items'} in place of the list, and pass "
        f"{'it' if one else 'them'} at every call."
    )
    yield Advice(slug="pass-items", text=text)


def key_order_advice(cause: Cause) -> Iterable[Advice]:
    """The same keys in another order: only what makes the dictionary can give them one order."""
    name = cause.source.removeprefix("keys of ")
    text = (
        f"The calls give `{name}` the same keys in different orders, and each order is compiled separately. Put its keys in one order "
        "everywhere."
    )
    yield Advice(slug="one-key-order", text=text)


def _joined(cause: Cause, name: str) -> Iterable[Advice]:
    """A list that the function only stacks: one tensor instead, with one dimension that varies."""
    joined = None if cause.function is None or not {"0", "1"}.isdisjoint(cause.values) else cause.function.joined(name)
    given = cause.code.passed(name) if joined else None
    if joined is None or given is None or len(cause.code.calls.entered) != 1:
        return
    line = cause.code.line
    stacked = joined.replace(name, given.text, 1)
    call = line.replaced(given.node, f"{name}_joined")
    text = (
        f"Each number of elements is compiled separately, and `{cause.code.name}` only joins them. Write `{name}` for `{joined}` in it, "
        "and join before the call."
    )
    after = f"{name}_joined = {stacked}\ntorch._dynamo.maybe_mark_dynamic({name}_joined, 0)\n{call}"
    yield Advice(slug="stack-list", text=text, before=line.code, after=after)


def _appended(cause: Cause, name: str) -> Iterable[Advice]:
    """What the function appends to a list that it does not read: handed out with the result and appended behind the call.

    Established by the source: the line stands in the function itself, in no loop or branch, and nothing else there uses the list. Where
    a call leaves more changed, as a count does, the versions would stay: torch names the first guard that failed only.
    """
    found = None if cause.function is None or cause.code.resumed or cause.beside else cause.function.appended(name)
    kept = container_at_call(cause, name)
    if found is None or kept is None or len(cause.code.calls.entered) != 1:
        return
    line = cause.code.line
    call = with_result(line, "appended")  # None where the call is a part of a statement, as in `for _ in range(3): step(x)`
    behind = "" if call is not None else f", with `{kept}.{found.method}(...)` behind the call"
    text = (
        f"`{name}` grows with each call, and each length is compiled separately. In `{cause.code.name}` delete "
        f"`{found.statement}`, write `{found.returned}` for `{found.result}`, and unpack it at every call, uncompiled ones "
        f"included{behind}."
    )
    after = None if call is None else f"{call}\n{kept}.{found.method}(appended)"
    yield Advice(slug="append-outside", text=text, before=None if call is None else line.code, after=after)


def container_at_call(cause: Cause, name: str) -> str | None:
    """An object that outlives the call, as the line that calls the function can write it: a global, `model.seen` for `self.seen`."""
    if not cause.code.line.code:
        return None
    raw = cause.guard.raw_source.removeprefix("len(")
    if is_global(raw):
        return name if cause.guard.origin is not None and cause.code.calls.entered[0].file.endswith(cause.guard.origin.file) else None
    if not name.startswith("self."):
        given = cause.code.passed(name)
        return given.text if given is not None and given.is_name else None
    call = the_call(cause.code.line)
    owner = None if call is None else dotted(call.func)
    if owner is None or cause.code.name != "forward":
        return None
    return f"{owner}{name.removeprefix('self')}"


def with_result(line: SourceLine, more: str) -> str | None:
    """The line of the call with a name for a second result; None where its result is not simply kept or dropped."""
    statement, call = line.statement, the_call(line)
    if isinstance(statement, ast.Expr) and statement.value is call:
        return f"_, {more} = {line.code}"
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and statement.value is call:
        return line.replaced(target, f"{target.id}, {more}")
    return None


_MOST_ITEMS = 3
_MOMENTUM = re.compile(r"\.param_groups\[\d+\]\[['\"](?:momentum['\"]\]$|betas['\"]\]\[0\]$)")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)$")
_ADDS = re.compile(r"\.(?:add|sub)_?$")
_INTEGER = re.compile(r"-?\d+$")


def value_advice(cause: Cause) -> Iterable[Advice]:
    """Cures for a number that was compiled in; whatever has no number's values is a variant of the program."""
    if not is_number(cause):
        return ()
    if _MOMENTUM.search(cause.source):
        return _constant_momentum()
    if ".param_groups[" in cause.source:
        if not is_learning_rate(cause) or cause.code.one_group is False:
            return ()
        unsure = "" if cause.code.one_group else "Where the optimizer has one group of parameters: "
        return (replace(advice, text=f"{unsure}{advice.text}") for advice in _learning_rate())
    if is_module_integer(cause):
        return _module_integer(cause)
    if cause.made_constant:
        return (*_as_factor(cause), *_as_buffer(cause))
    if cause.code.dynamic_false and all(map(_INTEGER.match, cause.values)):
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
    return "allow_unspec_int_on_nn_module" in (cause.guard.hint or "")


def _constant_momentum() -> Iterable[Advice]:
    """The optimizers of torch need these as numbers; the schedulers of torch that cycle them do so by default (2.11 and 2.15)."""
    text = (
        "This momentum of the optimizer changes between the steps, and torch compiles each value in. `OneCycleLR` and `CyclicLR` of torch "
        "cycle it by default: with `cycle_momentum=False` only the learning rate changes. That changes the training."
    )
    yield Advice(slug="constant-momentum", text=text)


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
    if cause.kind != "value" or not is_module_integer(cause) or is_global(cause.guard.raw_source) or cause.code.dynamic_false:
        return None
    function, name = None if cause.code.resumed else cause.function, cause.source
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
    function = None if cause.code.library else cause.function
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


def _as_buffer(cause: Cause) -> Iterable[Advice]:
    """A float that a module counts in `forward` and uses with tensors: a buffer is an input of the graph, and no guard has its value."""
    function, name = cause.function, cause.source
    counts = cause.code.name == "forward" and function is not None and not cause.code.resumed and not cause.code.library
    if not counts or function is None or re.fullmatch(r"self\.\w+", name) is None or not cause.code.float32 or function.sides(name) != 1:
        return
    if not function.adds_to(name):
        return
    first, buffer = cause.values[0], name.removeprefix("self.")
    text = (
        f"`{name}` is a float that the module changes, and torch compiles each value in. Keep it in a buffer "
        f'(`self.register_buffer("{buffer}", torch.tensor({first}), persistent=False)` in `__init__`), which compiled code changes in '
        "place. Where other code sets it, write into it (`.fill_(value)`). It is then a float32, so last digits may differ."
    )
    yield Advice(slug="float-in-buffer", text=text)


def _counted_outside(cause: Cause) -> Iterable[Advice]:
    """A count that the function keeps and does not read: `STATE["n"] += 1` belongs behind the call."""
    counted = None if cause.function is None or cause.code.resumed else cause.function.counted(cause.source)
    line, kept = cause.code.line, None if counted is None else container_at_call(cause, cause.source)
    if counted is None or kept is None or len(cause.code.calls.entered) != 1 or not _ends_there(line) or _reads(line, kept):
        return
    text = f"`{cause.code.name}` only counts with `{cause.source}`, and each count is compiled separately. Delete `{counted}` there, and"
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
    line = parse_line(None if cause.guard.origin is None else cause.guard.origin.code, imports)
    known = cause.function is not None and cause.source in (cause.code.calls.parameters or ()) and not cause.function.assigns(cause.source)
    if not known or " == " not in cause.guard.text or any(isinstance(node, _QUESTIONS) for node in line.nodes):
        return
    calls = [node for node in line.nodes if _of_math(node, cause.source)]
    everywhere = () if cause.function is None else cause.function.math_calls(cause.source)
    alone = all(names_in(call) == {cause.source, "math"} for call in calls)
    if cause.function is None or len(cause.code.calls.entered) != 1 or not (cause.code.float32 and cause.function.meet_tensors(everywhere)):
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


KINDS = (
    Kind(slugs=("mark-dynamic",), applied="rewrite", does="sizes are marked before the call"),
    Kind(slugs=("unspec-int-on-module", "raise-limit"), applied="option", does=SETS_OPTION, asks=IMPORTS_TORCH),
    Kind(slugs=("parameter-shapes",), applied="option", does=SETS_OPTION, asks=IMPORTS_TORCH, keeps_first=True),
    Kind(slugs=("drop-dynamic-false", "number-as-operand"), keeps_first=True),
)
