"""Whether an attribute that code takes is only called there: by the code's instructions, of Python 3.11 to 3.14."""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import NamedTuple

_LOADS_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_STILL = frozenset(("CACHE", "EXTENDED_ARG", "KW_NAMES", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME"))
# How many values an instruction takes from the stack, where it leaves at most one; of the others `stack_effect` tells it.
_TAKES = {"BINARY_OP": 2, "BINARY_SUBSCR": 2, "LIST_TO_TUPLE": 1, "CALL_INTRINSIC_1": 1, **dict.fromkeys(_LOADS_OF_ATTRIBUTES, 1)}
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_INTO_CONTAINER = frozenset(("LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE", "DICT_MERGE", "DICT_UPDATE"))
_RUNS_CODE = frozenset(("LOAD_ATTR", "BINARY_OP", "BINARY_SUBSCR", *_CALLS, *_INTO_CONTAINER))


class DirectCall(NamedTuple):
    """A call `value.name(...)`: nothing else can see the attribute. `plain`: none of its arguments calls or computes anything."""

    plain: bool


def direct_call(code: CodeType, offset: int) -> DirectCall | None:
    """The call that the attribute loaded at this instruction is made for, or None where it may be kept or passed on.

    The compiler loads a method in a way of its own only where a call follows (`LOAD_METHOD`; from 3.12 on a bit of `LOAD_ATTR`). With `*`
    or `**` among the arguments it does not, so the instructions up to the call are followed there.
    """
    after = [instruction for instruction in dis.get_instructions(code) if instruction.offset >= offset]
    if not after or after[0].opname not in _LOADS_OF_ATTRIBUTES:
        return None
    as_method = bool((after[0].arg or 0) & 1) if sys.version_info >= (3, 12) else after[0].opname == "LOAD_METHOD"
    depth, plain = 2 if as_method else 1, True
    below = 0 if as_method or sys.version_info >= (3, 13) else 1  # the NULL that says that a call follows lies below what is called
    for pair in after[1:]:
        taken = _taken(pair)
        if taken is None or taken >= depth:  # it takes the attribute itself
            calls = pair.opname in _CALLS and taken == depth + below
            return DirectCall(plain and calls) if as_method or calls else None
        depth += dis.stack_effect(pair.opcode, pair.arg, jump=False) if pair.opcode >= dis.HAVE_ARGUMENT else dis.stack_effect(pair.opcode)
        plain = plain and pair.opname not in _RUNS_CODE
    return None


def _taken(pair: dis.Instruction) -> int | None:
    """How many values it takes; None for an instruction that is not known to leave those below alone."""
    name, arg = pair.opname, pair.arg or 0
    if name in _TAKES:
        return _TAKES[name]
    if name in _STILL or name.startswith("LOAD_"):
        return 0
    if name.startswith("BUILD_") or name in _CALLS:
        return 1 - dis.stack_effect(pair.opcode, arg)
    return 1 if name in _INTO_CONTAINER else None
