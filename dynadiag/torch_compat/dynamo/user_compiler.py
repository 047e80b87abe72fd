"""The one place that stands around `OutputGraph.call_user_compiler`, by which Dynamo hands each graph to a back end.

It takes the graph, and from torch 2.8 its inputs, and gives the compiled function (`torch/_dynamo/output_graph.py`, 2.6 to 2.15).
`watch_calls` stands around the calls of that function.
"""

from __future__ import annotations

import functools
import itertools
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

from dynadiag.torch_compat.causes import chain_of
from dynadiag.torch_compat.trace.hooks import disguise, without_callback

_T = TypeVar("_T")
_NAME = "call_user_compiler"


def watch_compiler(
    output_graph: ModuleType,
    begin: Callable[[Any, Any, Callable[[], Sequence[Any]]], _T],
    *,
    end: Callable[[_T, Any], Any] | None = None,
    failed: Callable[[_T, Exception], None] | None = None,
    restarted: Callable[[_T], None] | None = None,
    replace: Callable[[Any, str, Any], None] = setattr,
) -> Callable[[], None]:
    """Call `begin` with the `OutputGraph`, the graph and a function that gives its inputs, before a back end gets the graph.

    `end` gets what `begin` gave and the compiled function, and gives the one that Dynamo is to use; `failed` the error that the back end
    raised, and `restarted` is told instead that it only sent Dynamo back to trace the frame again (a symbolic number that it needs as a
    tensor, say). All run with Dynamo's callback off; what they raise goes to Dynamo. Those that watch later stand further out. Gives the
    function that takes this watch out again; with `replace`, such as `Hooks.replace`, who put it in may take it out instead.
    """
    owner = output_graph.OutputGraph
    original = getattr(owner, _NAME)
    aside = without_callback(output_graph.__file__)

    def dynadiag_watch(self: Any, module: Any, *inputs: Any) -> Any:
        begun = aside(begin, self, module, lambda: inputs[0] if inputs else self.example_inputs())
        try:
            compiled = original(self, module, *inputs)
        except Exception as error:
            if isinstance(error, sys.modules["torch._dynamo.exc"].RestartAnalysis):
                if restarted is not None:
                    aside(restarted, begun)
            elif failed is not None:
                aside(failed, begun, error)
            raise
        return compiled if end is None else aside(end, begun, compiled)

    wrapper = functools.wraps(original)(disguise(dynadiag_watch, output_graph.__file__))
    replace(owner, _NAME, wrapper)
    return lambda: setattr(owner, _NAME, original)


def raised_in_back_end(error: BaseException) -> bool:
    """Whether the exception, or one that led to it, was raised after Dynamo had handed a graph to its back end."""
    return any(frame.name == _NAME for item in chain_of(error) for frame in traceback.extract_tb(item.__traceback__))


def watch_calls(
    compiled: Callable[..., Any],
    before: Callable[[int, tuple[Any, ...]], _T | None],
    *,
    after: Callable[[_T, tuple[Any, ...], Any], None],
    failed: Callable[[_T, Exception], None],
) -> Callable[..., Any]:
    """A compiled graph whose calls are seen: `before` gets the number of the call, from 1, and its inputs. What that gives `after` gets,
    with inputs and results, or `failed` with the error, also with one of `after`; where it gives None the rest of the call is not watched.

    All run with Dynamo's callback off.
    """
    file = sys.modules["torch._dynamo.output_graph"].__file__
    aside, calls = without_callback(file), itertools.count(1)

    def dynadiag_call(*args: Any) -> Any:
        begun = aside(before, next(calls), args)
        if begun is None:
            return compiled(*args)
        try:
            results = compiled(*args)
            aside(after, begun, args, results)
        except Exception as error:
            aside(failed, begun, error)
            raise
        return results

    return functools.update_wrapper(disguise(dynadiag_call, file), compiled, updated=())
