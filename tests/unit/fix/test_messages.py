"""Messages of libraries: which lines are rewritten, and which are not."""

from __future__ import annotations

import pytest

from dynadiag.fix.edits import EditError, applied
from dynadiag.fix.messages import while_tracing

HEAD = "import warnings\n\nimport torch\n\n\n"


def changed(body: str, row: int) -> str | None:
    text = HEAD + body
    made = while_tracing("f", "/library.py", text, 5 + row)
    return None if made is None else applied(text, made.edits[0])[0].removeprefix(HEAD)


def test_a_warning_keeps_its_line_and_its_words():
    body = "def f(x):\n    warnings.warn(\n        'old', FutureWarning\n    )\n    return x\n"
    assert changed(body, 2) == "def f(x):\n    dynadiag_warn(7,\n        'old', FutureWarning\n    )\n    return x\n"
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
