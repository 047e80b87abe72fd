"""Runs snippets, each recorded into a directory of its own and then probed: `mutation_runner.py FOLDER FILE...`.

A snippet has `fn` and `make()`, and may have `step(f, args)`, `CALLS` and `BACKENDS` (`tests/corpus/mutations` has the same form).
"""

import contextlib
import importlib
import io
import sys
import warnings
from pathlib import Path

import torch
import torch._dynamo


def run(module):
    for backend in getattr(module, "BACKENDS", ["aot_eager"]):
        torch._dynamo.reset()
        arguments = module.make()
        compiled = torch.compile(module.fn, backend=backend)
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            for _ in range(getattr(module, "CALLS", 2)):
                module.step(compiled, arguments) if hasattr(module, "step") else compiled(*arguments)


def main(folder, files):
    warnings.simplefilter("ignore")
    import dynadiag
    from dynadiag.fx import probe_graph
    from dynadiag.fx import probe_main as probe
    from dynadiag.torch_compat.dynamo.guard_timing import check_guards_untimed

    check_guards_untimed()
    probe_graph.LONGEST_S = 1000.0  # a slow machine must not cost a graph
    for file in map(Path, files):
        sys.path.append(str(file.parent))
        with dynadiag.observe(folder / file.stem):
            run(importlib.import_module(file.stem))
        probe.main([str(folder / file.stem), "--budget-s", "3000"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
