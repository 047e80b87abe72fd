"""An exception and what caused it, through torch's own wrappers. Imports no torch."""

from __future__ import annotations


def chain_of(error: BaseException) -> list[BaseException]:
    """The exception and its causes, the innermost last; torch's wrappers keep theirs in `inner_exception`."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        inner = getattr(current, "inner_exception", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__
    if len(chain) > 1 and type(chain[-1]).__name__ == "CalledProcessError":
        chain.pop()  # the command line of a compiler; what the compiler said stands in the exception before it
    return chain
