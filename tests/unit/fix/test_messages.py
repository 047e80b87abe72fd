"""Messages of libraries and sizes that are read of tensors: which lines are rewritten, and which are not."""

from __future__ import annotations

import pytest

from dynadiag.changes.edits import applied
from dynadiag.changes.library_messages import while_tracing
from dynadiag.changes.size_reads import read_once, read_outside
from dynadiag.errors import EditError

HEAD = "import warnings\n\nimport torch\n\n\n"


def changed(body: str, row: int) -> str | None:
    text = HEAD + body
    made = while_tracing("f", "/library.py", text, 5 + row)
    return None if made is None else applied(text, made.edits[0])[0].removeprefix(HEAD)


def test_a_warning_keeps_its_line_and_its_words():
    body = "def f(x):\n    warnings.warn(\n        'old', FutureWarning\n    )\n    return x\n"
    assert changed(body, 2) == "def f(x):\n    dynadiag_warn(\n        7, 'old', FutureWarning\n    )\n    return x\n"
    assert changed("def f(x):\n    warnings.warn(f'{x.shape}', category=UserWarning)\n", 2).endswith(
        "dynadiag_warn(7, f'{x.shape}', category=UserWarning)\n"
    )
    assert changed("def f(x):\n    log.warning_once(\n        'old')\n", 2) == "def f(x):\n    dynadiag_warning_once(\n        'old')\n"


@pytest.mark.parametrize("arguments", ["'old', FutureWarning, 2", "'old', stacklevel=2", "'old', source=x", "'old', *more, **x"])
def test_a_warning_at_the_line_of_a_caller_is_left(arguments):
    with pytest.raises(EditError, match="line of a caller"):
        changed(f"def f(x, more):\n    warnings.warn({arguments})\n", 2)


def test_what_is_no_message_is_left():
    assert changed("def f(x):\n    y = x + 1\n", 2) is None
    assert changed("def f(x):\n    print(x)\n", 2) is None
    assert changed("def f(self):\n    self.log.hint_once('a')\n", 2) is None
    with pytest.raises(EditError, match="import warnings"):
        while_tracing("f", "/library.py", "import torch\ndef f():\n    warnings.warn('a')\n", 3)


SIZES = """def sizes(mask):
    n = mask.sum()
    most = mask.sum(dim=1).max()
    return n, most


def use(x, most, other):
    y = x.new_zeros(
        2, most
    )
    return y.narrow(0, 0, other)
"""


def test_a_size_is_read_where_it_is_made():
    edit = read_once("/library.py", SIZES, 8)
    assert (edit.old, edit.new, edit.near) == (("most = mask.sum(dim=1).max()",), ("most = mask.sum(dim=1).max().item()",), 3)
    with pytest.raises(EditError, match="no line is known"):
        read_once("/library.py", SIZES, 11)
    with pytest.raises(EditError, match="no line is known"):
        read_once("/library.py", SIZES + "\n\ndef again(x):\n    most = x.max()\n    return most\n", 8)
    several = SIZES.replace("= mask.sum(dim=1).max()", "= mask.sum(\n        dim=1\n    ).max()  # of all")
    assert read_once("/library.py", several, 10).new == ("most = mask.sum(", "    dim=1", ").max().item()  # of all")


def test_a_number_that_python_branches_on_is_read_outside_of_the_graph():
    text = "import torch\n\n\ndef f(x, go):\n    some = x.any().item()\n    top = x.max().item()\n    return g(x, some, top)\n"
    branches = "\n\ndef g(x, some, top):\n    if some:\n        return x * top\n    return x\n"
    edit = read_outside("/library.py", text + branches, 5)
    assert edit is not None and applied(text + branches, edit)[0].splitlines()[4:6] == [
        "    with torch._dynamo.patch_dynamo_config(capture_scalar_outputs=False):",
        "        some = x.any().item()",
    ]
    assert read_outside("/library.py", (text + branches).replace("import torch", "import torch as th"), 5) == edit
    assert [read_outside("/library.py", text + branches, row) for row in (6, 7)] == [None, None]
    assert read_outside("/library.py", text, 5) is None
