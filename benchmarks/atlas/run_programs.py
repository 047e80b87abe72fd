"""Runs the programs of entries of the atlas in one environment, and prints what torch counted of each: one JSON object a line.

Standard input is a JSON list of objects with `key`, `before`, `after` and `apart`: whether each program needs a process of its own, because
it sets something that the library reads when it is imported. A program leaves what is compared in `result`. Needs torch and the libraries.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import re
import signal
import sys
import traceback
import warnings
from typing import Any

import torch
from torch._dynamo import utils

_SECONDS = 300
_RAISED = "raised"
_NAMED = re.compile(r"torch\._dynamo\.config\.(\w+)")
_RUNS = (("before", True), ("before", False), ("after", False))


class _Messages(logging.Handler):
    """Keeps what torch says of graph breaks, with the stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.texts.append(record.getMessage())


_MESSAGES = _Messages()


def listen() -> None:
    """Have torch say where it breaks, to us alone."""
    torch._logging.set_logs(graph_breaks=True)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and "graph_breaks" in name:
            logger.handlers[:], logger.propagate = [_MESSAGES], False


def seen(text: str, through: str) -> bool:
    """Whether a function of a library (`module:qualified.name`) stands in a printed stack."""
    module, _, name = through.partition(":")
    path = re.escape(module.replace(".", "/"))
    return re.search(rf"{path}(?:/__init__)?\.py(?:\", line |:)\d+,? in \S*{name.rpartition('.')[2]}\b", text) is not None


def outcome(text: str, key: str, *, eager: bool = False) -> dict[str, Any]:
    """Torch's counters after a program, its result, and the exception that ended it."""
    torch._dynamo.reset()
    utils.counters.clear()
    utils.clear_compilation_metrics()
    utils.set_compilation_metrics_limit(10_000)
    utils.guard_failures.clear()
    _MESSAGES.texts.clear()
    torch.manual_seed(0)
    error, names = None, {"__name__": "__main__"}
    stance = "force_eager" if eager else "default"
    with torch.compiler.set_stance(stance):
        try:
            exec(compile(text, f"{key}.py", "exec"), names)
        except TimeoutError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the program raises is what is asked
            error = type(raised).__name__
            _MESSAGES.texts.append(str(raised))
            print(f"{key}: {''.join(traceback.format_exception_only(raised))[:500]}", file=sys.stderr)
    broken = utils.counters["graph_break"]
    ids = {str(metrics.compile_id).partition("_")[0] for metrics in utils.get_compilation_metrics() if metrics.compile_id is not None}
    return {
        "breaks": sum(broken.values()),
        "graphs": utils.counters["stats"]["unique_graphs"],
        "recompiles": sum(not name.endswith("/0") for name in ids),
        "error": error,
        "result": _RAISED if error else names.get("result"),
        "named": _options_named("\n".join(broken)),
        "said": "\n".join((*_MESSAGES.texts, *(str(reason) for reasons in utils.guard_failures.values() for reason in reasons))),
    }


def _options_named(messages: str) -> list[str]:
    """The switches of Dynamo, off by default, that torch's hints in its messages name."""
    return [name for name in dict.fromkeys(_NAMED.findall(messages)) if getattr(torch._dynamo.config, name, None) is False]


def hinted(text: str, key: str, option: str) -> dict[str, Any]:
    """The outcome of a program with a switch that torch's hints name."""
    with torch._dynamo.config.patch(option, True):
        return {"option": option, **outcome(text, key)}


def with_hints(text: str, key: str, *, eager: bool) -> dict[str, Any]:
    """The outcome of a program, and that of the same with each switch that torch's hints for its breaks name."""
    found = outcome(text, key, eager=eager)
    return {**found, "hints": [hinted(text, key, option) for option in found.pop("named")]}


def in_child(calls: list[tuple[str, str, bool]]) -> list[dict[str, Any]]:
    """The outcomes of programs (text, key, eager) in one forked process; what it did not come to is missing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            signal.signal(signal.SIGALRM, _stop)
            signal.alarm(_SECONDS)
            held = io.BytesIO()
            torch.save([with_hints(text, key, eager=eager) for text, key, eager in calls], held)
            with os.fdopen(writer, "wb") as file:
                file.write(held.getvalue())
        except BaseException as raised:  # noqa: BLE001 - the child must not go on in the code of its parent
            print(f"{calls[0][1]}: {raised!r}", file=sys.stderr)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    # Written by our own child just now.
    return torch.load(io.BytesIO(data), weights_only=False) if data else []


def _stop(*_: Any) -> None:
    raise TimeoutError(f"more than {_SECONDS} s")


def same(left: Any, right: Any) -> str:
    """How two results differ; "" where they do not."""
    try:
        torch.testing.assert_close(right, left, equal_nan=True)
    except (AssertionError, TypeError, ValueError) as error:
        return str(error).strip().splitlines()[0]
    return ""


def answers(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the programs of some entries did: before and after the cure, and how the cured result differs from that of eager before it."""
    calls = [(entry[name], entry["key"], eager) for entry in entries for name, eager in _RUNS]
    found = [item for call in calls for item in in_child([call])] if entries[0]["apart"] else in_child(calls)
    if len(found) < len(calls):
        return (
            [answer for entry in entries for answer in answers([entry])]
            if len(entries) > 1
            else [_failed(entries[0], "a program did not end")]
        )
    return [_judged(entry, *found[len(_RUNS) * number :][: len(_RUNS)]) for number, entry in enumerate(entries)]


def _judged(entry: dict[str, Any], eager: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    if eager["error"] or eager["result"] is None:
        return _failed(entry, f"eager before the cure: {eager['error'] or 'no result'}")
    hints = [
        {"option": hint["option"], "counts": _counts(hint), "differs": bool(same(eager["result"], hint["result"]))}
        for hint in before["hints"]
    ]
    differs = same(eager["result"], after["result"])
    unseen = [name for name in entry["through"] if not seen(before["said"], name)]
    return {"key": entry["key"], "before": _counts(before), "after": _counts(after), "differs": differs, "hints": hints, "unseen": unseen}


def _counts(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("breaks", "graphs", "recompiles", "error")}


def _failed(entry: dict[str, Any], why: str) -> dict[str, Any]:
    return {"key": entry["key"], "failed": why}


def warm_up() -> None:
    """Import what a first compilation imports, so that the forked processes need not."""
    torch.compile(lambda x: (torch._dynamo.graph_break(), x + 1)[1], backend="aot_eager")(torch.ones(2))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    listen()
    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    warm_up()
    asked = json.load(sys.stdin)
    # Those that need no process of their own share one for each library, which takes long to import.
    groups = itertools.groupby(asked, lambda entry: entry["key"] if entry["apart"] else entry["key"].partition("/")[0])
    for _, together in groups:
        for found in answers(list(together)):
            print(json.dumps(found), flush=True)
