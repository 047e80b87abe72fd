"""How to say that a line belongs outside the compiled function: which side of the call, by what the line itself shows."""

from __future__ import annotations

import ast
import builtins

from dynadiag.advice.situation import Situation, line_name, quoted
from dynadiag.advice.source import SourceLine, dotted


def outside(situation: Situation, what: str = "") -> str:
    """One sentence: where the code goes that cannot be compiled.

    Before the call only when it takes nothing that the function may have computed; after it when its value is returned or not used. All
    else stands in the middle, and "pass its result in" would ask for what is not there yet. `what` names a call on the line.
    """
    line, shown = situation.line, f"`{what}`" if what else line_name(situation)
    if not (situation.editable or situation.direct):
        return f"Keep {line_name(situation)}, which leads there, out of the compiled function"
    if isinstance(line.statement, ast.Return):
        return f"Return what {shown} takes from the compiled function, and do it on the result, after the call"
    if line.statement_is_call():
        return (
            f"Take {line_name(situation)} out of the compiled function: return what it takes and do it after the compiled call, if nothing "
            "behind it in the function reads what it changes; or before the call, if nothing of the function is in it"
        )
    if takes_nothing(line):
        return f"Do {shown} before the compiled call and pass its result in"
    return (
        f"End the compiled function before {line_name(situation)}, do this line in plain Python, and compile what computes behind it as a "
        "function of its own"
    )


def takes_nothing(line: SourceLine) -> bool:
    """Whether no name that the line reads can be a value of the function: it reads only modules' functions, constants and builtins."""
    statement = line.statement
    if not isinstance(statement, ast.Assign):
        return False
    called = {id(one) for node in ast.walk(statement.value) if isinstance(node, ast.Call) for one in ast.walk(node.func)}
    read = [node for node in ast.walk(statement.value) if isinstance(node, ast.Name) and not hasattr(builtins, node.id)]
    owners = {dotted(node.func) or "" for node in ast.walk(statement.value) if isinstance(node, ast.Call)}
    return bool(owners) and all(id(node) in called and _is_module(node.id, owners) for node in read)


def _is_module(name: str, owners: set[str]) -> bool:
    """Whether the name stands before a dot in a call by modules that are always modules: a method of a tensor is none."""
    return name in owners or (name in _MODULES and any(owner.startswith(f"{name}.") for owner in owners))


_MODULES = frozenset(
    (
        "collections", "copy", "datetime", "functools", "gc", "inspect", "io", "itertools", "json", "logging", "math", "np", "numpy",
        "operator", "os", "pathlib", "pickle", "platform", "queue", "random", "re", "secrets", "shutil", "signal", "socket", "string",
        "subprocess", "sys", "tempfile", "threading", "time", "torch", "uuid", "warnings",
    )
)  # fmt: skip


def reads_numbers(line: SourceLine, name: str) -> bool:
    """Whether the call of `name` on the line is given Python numbers (`f(x.tolist())`): it computes on no tensor then."""
    call = next((node for node in line.nodes if isinstance(node, ast.Call) and dotted(node.func) == name), None)
    given = () if call is None else (*call.args, *(keyword.value for keyword in call.keywords))
    return bool(given) and all(_is_number(one) for one in given)


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    return isinstance(node, ast.Call) and (
        (isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "tolist", "numpy")) or dotted(node.func) in _CASTS
    )


_CASTS = ("float", "int", "str", "len", "list", "set", "dict", "range")


def instead(line: SourceLine, after: str | None) -> str:
    """The rewritten line in backticks for a sentence, or the general form where it cannot be written out."""
    return quoted(after) if after else f"the method without `_` ({quoted(line.code)} as an assignment)"
