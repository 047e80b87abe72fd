"""What stands in a followed graph for an operator whose code is not here: it writes what its recorded schema says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.fx.backward_calls import OPERATORS
from dynadiag.torch_compat.dispatch.writes import declared_writes, parse_schema, returned_arguments

TRITON = "torch.ops.higher_order.triton_kernel_wrapper_mutation"
_OPERATOR = re.compile(r"torch\.ops\.(?P<namespace>\w+)\.(?P<name>\w+)(?:\.(?P<overload>\w+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFacts:
    """What was recorded of operators that only the recorded process had.

    `schemas` by "namespace::name.overload" (no overload for "default"); `triton_writes`: arguments that a Triton kernel writes, by its
    number.
    """

    schemas: Mapping[str, str] = field(default_factory=dict)
    triton_writes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One tensor that a call of a stand-in writes: the argument's name, its value."""

    argument: str
    value: Any


class MissingOperator:
    """The target of a node whose operator is not here. The probe asks it; it is never called for a result."""

    __module__ = __name__

    def __init__(self, printed: str, facts: OperatorFacts) -> None:
        self.printed = printed
        self.__name__ = re.sub(r"\W", "_", printed)
        self._facts = facts
        self._schema = None if printed == TRITON else _schema(printed, facts)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Never a result: a graph with stand-ins does not run."""
        raise RuntimeError(f"{self.printed} is not available here")

    def writes(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Write, ...] | None:
        """The arguments that this call writes; None when nothing recorded says."""
        if self.printed == TRITON:
            return self._triton_writes(kwargs)
        if self.printed.startswith(OPERATORS):
            return ()  # torch's own backward functions give new gradients and write nothing
        if self._schema is None:
            return None
        bound = dict(zip((argument.name for argument in self._schema.arguments), args, strict=False)) | dict(kwargs)
        return tuple(Write(argument=name, value=bound[name]) for _, name in declared_writes(self._schema) if name in bound)

    def returned(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The argument that the operator declares to return, None when its result is fresh."""
        if self._schema is None:
            return None
        names = returned_arguments(self._schema)
        if len(names) != 1 or names[0] is None:
            return None
        bound = dict(zip((argument.name for argument in self._schema.arguments), args, strict=False)) | dict(kwargs)
        return bound.get(names[0])

    @property
    def has_result(self) -> bool:
        """False when the schema says that it returns nothing."""
        return self.printed != TRITON and (self._schema is None or bool(self._schema.returns))

    def _triton_writes(self, kwargs: Mapping[str, Any]) -> tuple[Write, ...] | None:
        names = self._facts.triton_writes.get(kwargs.get("kernel_idx", -1))
        values = kwargs.get("kwargs")
        if names is None or not isinstance(values, Mapping):
            return None
        return tuple(Write(argument=name, value=values[name]) for name in names if name in values)


def _schema(printed: str, facts: OperatorFacts) -> Any:
    found = _OPERATOR.fullmatch(printed)
    if found is None:
        return None
    name = f"{found['namespace']}::{found['name']}"
    overload = found["overload"]
    text = facts.schemas.get(name if overload in (None, "default") else f"{name}.{overload}")
    return parse_schema(text) if isinstance(text, str) else None
