"""Runs the examples of `dynadiag/rules/pages`: `page_examples.py PAGES FOLDER` records each before and after.

Prints {code: true} for those whose results are equal.
"""

import gc
import json
import random
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dynadiag.record import observe
from dynadiag.torch_compat.dynamo.compiled_calls import forget_compiled


def examples(page):
    """Both blocks of a page; none where it has none, or where they are lines that another program surrounds."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return blocks if any("torch.compile" in block and re.search(r"^ *out = ", block, re.MULTILINE) for block in blocks) else []


def result(source, file, folder):
    """What the block has as `out` when it is recorded."""
    file.write_text(source)
    torch.manual_seed(0)
    forget_compiled()
    names = {"torch": torch, "np": np, "random": random, "gc": gc, "__name__": "example"}
    config = torch._dynamo.config
    with observe(folder), config.patch(suppress_errors=config.suppress_errors, disable=config.disable):
        exec(compile(source, str(file), "exec"), names)
    torch.compiler.set_stance("default")
    return names["out"]


if __name__ == "__main__":
    pages, out = map(Path, sys.argv[1:])
    # The examples are about Dynamo: no back end need wait for a compiler.
    torch.compile = partial(torch.compile, backend="eager")
    equal = {}
    for page in sorted(pages.glob("D*.md")):
        if blocks := examples(page):
            sides = [
                result(block, out / f"{page.stem.lower()}_{side}.py", out / f"{page.stem}-{side}")
                for side, block in zip(("before", "after"), blocks, strict=True)
            ]
            torch.testing.assert_close(*sides, msg=lambda text, code=page.stem: f"{code}: {text}")
            equal[page.stem] = True
    print(json.dumps(equal))
