"""Advice for values and objects that Dynamo does not know: text of tensors, identities, storages, NumPy, operators without a fake."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.advice import scalars, training
from dynadiag.advice.outside import outside
from dynadiag.advice.situation import CHANGES, Situation, guarded, line_name, option, rewrite, say
from dynadiag.advice.source import dotted
from dynadiag.model.report import Advice


def sorting(situation: Situation) -> Iterator[Advice]:
    """`sorted(tensor)`, or a key that reads tensors."""
    call = next(situation.line.calls("sorted"), None)
    if call is not None and len(call.args) == 1 and not call.keywords:
        after = situation.line.replaced(call, f"torch.sort({situation.line.text(call.args[0])}).values")
        yield from rewrite(situation, "sort-torch", after, "Sort on the device")
        return
    yield from say("sort-torch", "Sort on the device with `torch.sort` or `torch.argsort` instead of Python's `sorted`")


def evaluated(situation: Situation) -> Iterator[Advice]:
    """`eval`, `exec`, `globals`, `locals`."""
    yield from say("dynamic-code", f"Write out what {line_name(situation)} computes, or do it outside the compiled function")


def texts(situation: Situation) -> Iterator[Advice]:
    """`str(tensor)`, `repr(tensor)`, `"%s" % tensor`: text of a tensor needs its values."""
    for call in situation.line.calls("str", "repr"):
        if len(call.args) == 1 and isinstance(call.func, ast.Name):
            after = situation.line.replaced(call, f'f"{{{situation.line.text(call.args[0])}}}"')
            if '"' not in situation.line.text(call.args[0]):
                yield from rewrite(situation, "text-format", after, "Write an f-string, which Dynamo can finish after the graph has run")
            break
    yield from say("text-outside", "Or return the tensor and make the text outside the compiled function")


def ranges(situation: Situation) -> Iterator[Advice]:
    """`range(tensor)`."""
    yield from scalars.slices(situation)


def hashes(situation: Situation) -> Iterator[Advice]:
    """`hash(...)`, `id(...)` inside."""
    yield from say("identity-outside", outside(situation))


def storages(situation: Situation) -> Iterator[Advice]:
    """`x.untyped_storage().nbytes()`, `x.data_ptr() % 16`."""
    if "data_ptr" in situation.line.code:
        text = f"Do {line_name(situation)} before the compiled call: a tensor has no address while it is traced"
        yield from say("pointer-outside", text)
        return
    yield from say(
        "storage-shape",
        "Compute sizes from the shape (`x.numel() * x.element_size()`); storages are not known while compiling",
    )


def not_a_tensor(situation: Situation) -> Iterator[Advice]:
    """`GB0208`: a torch function that returns a Python value."""
    if isinstance(_percent(situation), ast.BinOp):
        yield from percent_formats(situation)
    elif "fork_rng" in situation.line.code or "seed" in situation.context:
        yield from training.random_state(situation)
    elif any(True for _ in situation.line.calls("copy.copy")):
        yield from training.shallow_copy(situation)
    elif "__eq__" in situation.context:
        yield from none_checks(situation)
    else:
        yield from say("value-outside", f"{outside(situation)}: {_value_of(situation)} gives a Python value")


def inference_checks(situation: Situation) -> Iterator[Advice]:
    """`x.is_inference()`, `torch.is_inference_mode_enabled()`: compiled code is guarded by the mode and cannot ask for it."""
    yield from say("value-outside", f"Ask in {situation.called} outside the compiled function and pass the answer in")


def out_arguments(situation: Situation) -> Iterator[Advice]:
    """`torch.add(x, y, out=z)` where `z` has another shape and would be resized."""
    call = situation.line.only_call()
    keyword = next((one for one in call.keywords if one.arg == "out"), None) if call is not None else None
    if call is not None and keyword is not None and isinstance(keyword.value, ast.Name):
        parts = [
            *(situation.line.text(one) for one in call.args),
            *(situation.line.text(one) for one in call.keywords if one is not keyword),
        ]
        after = f"{situation.line.text(keyword.value)} = {situation.line.text(call.func)}({', '.join(parts)})"
        yield from rewrite(situation, "out-result", after, "Take the result instead of `out=`, whose tensor has another shape")
        return
    yield from say("out-result", f"Take the result of {situation.called} instead of `out=`, whose tensor has another shape")


def percent_formats(situation: Situation) -> Iterator[Advice]:
    """`"%s" % tensor`."""
    node = _percent(situation)
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant) and node.left.value == "%s":
        after = situation.line.replaced(node, f'f"{{{situation.line.text(node.right)}}}"')
        yield from rewrite(situation, "text-format", after, "Write an f-string, which Dynamo can finish after the graph has run")
    yield from say("text-outside", "Or return the tensor and make the text outside the compiled function")


def none_checks(situation: Situation) -> Iterator[Advice]:
    """`tensor == None`."""
    for node in situation.line.nodes:
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            word = "is" if isinstance(node.ops[0], ast.Eq) else "is not"
            after = situation.line.replaced(node, f"{situation.line.text(node.left)} {word} {situation.line.text(node.comparators[0])}")
            yield from rewrite(situation, "none-is", after, "Compare with `is`: `==` asks the tensor")
            return


def arguments(situation: Situation) -> Iterator[Advice]:
    """`GB0055`: an argument that cannot be put into a graph."""
    if "Generator" in situation.context:
        yield from training.generators(situation)
    elif "FakeIdVariable" in situation.context:
        yield from hashes(situation)
    else:
        yield from say("call-outside", outside(situation))


def numpy_calls(situation: Situation) -> Iterator[Advice]:
    """`GB0294`: NumPy functions that torch does not know."""
    call = next((n for n in situation.line.nodes if isinstance(n, ast.Call) and re.match(r"(np|numpy)\.", dotted(n.func) or "")), None)
    name = f"`{dotted(call.func)}`" if call is not None else "this NumPy function"
    yield from guarded(situation, "io-guard", f"Or leave {line_name(situation)} out of compiled code: {CHANGES}")
    yield from say("numpy-outside", f"Use a torch function instead of {name}, or call it outside the compiled function")


def numpy_off(situation: Situation) -> Iterator[Advice]:
    """NumPy tracing was switched off."""
    yield from option(situation, "numpy-trace", "trace_numpy", " = True", "Switch tracing of NumPy calls on again")
    yield from say("numpy-torch", "Use torch functions instead of NumPy")


def no_fake(situation: Situation) -> Iterator[Advice]:
    """`GB0090`: an operator without a fake implementation."""
    op = re.search(r"(?:operator: )?\b((?:\w+)\.(?:\w+))(?:\.\w+)?\s*$", situation.context.splitlines()[0] if situation.context else "")
    name = op[1].replace(".", "::", 1) if op else "namespace::name"
    if name.startswith("aten::_nested"):
        yield from training.nested(situation)
        return
    after = f'@torch.library.register_fake("{name}")'
    text = f"Tell torch what `{name}` returns: a function with the same arguments that returns an empty tensor of the right shape and dtype"
    yield from say("register-fake", text, after=after)


def _value_of(situation: Situation) -> str:
    name = re.search(r"target: <(?:built-in )?function (\w+)", situation.context) or re.search(r"target: (\w+)", situation.context)
    return f"`{name[1]}`" if name else line_name(situation)


def _percent(situation: Situation) -> ast.AST | None:
    found = (n for n in situation.line.nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) and isinstance(n.left, ast.Constant))
    return next(found, None)


def type_checks(situation: Situation) -> Iterator[Advice]:
    """`isinstance` and `hasattr` that run user code."""
    yield from say("check-outside", f"Decide {line_name(situation)} once outside the compiled function, or check a plain type")


def generator_objects(situation: Situation) -> Iterator[Advice]:
    """`GB8335`: a break inside a generator expression, which cannot be rebuilt; a list in its place has the same break inside."""
    yield from say("generator-break", f"Cure the break inside the generator of {line_name(situation)}: Dynamo cannot go on in its middle")
