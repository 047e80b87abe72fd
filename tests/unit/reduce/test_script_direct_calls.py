"""What was compiled somewhere inside a script is compiled alone, with arguments like those that it had. No torch, nothing run."""

from __future__ import annotations

import textwrap

from dynadiag.reduce.scripts.passes.direct_calls import direct_calls
from dynadiag.reduce.scripts.program import Facts, definition_text, parsed

TRAINER = """
    import logging
    import torch

    config = [4]

    class Net(torch.nn.Module):
        def __init__(self, sizes):
            super().__init__()
            self.layer = torch.nn.Linear(sizes[0], 4)

        def forward(self, x):
            return self.layer(x)

    class Trainer:
        def __init__(self, sizes):
            self.net = Net(config)
            self.step = torch.compile(self.one_step, backend="eager", fullgraph=False)

        def one_step(self, x, y):
            return self.net(x) + y

        def fit(self):
            self.step(torch.randn(2, 4), 1)

    if __name__ == "__main__":
        torch.manual_seed(0)
        Trainer(config).fit()
"""
VALUES = {
    definition_text("forward", ["self", "x"]): "torch.randn((2, 4))",
    definition_text("one_step", ["self", "x", "y"]): "torch.randn((2, 4)), 1",
}


def proposed(text, values):
    facts = Facts(values=values)
    return [one.text for one in direct_calls(lambda program: facts)(parsed(textwrap.dedent(text), "script.py"))]


def test_each_function_that_ran_is_compiled_alone_the_last_one_first():
    found = proposed(TRAINER, VALUES)
    options = "backend='eager', fullgraph=False"
    assert [text.splitlines()[-1] for text in found[::2]] == [
        f"torch.compile(Trainer(config).fit, {options})()",
        f"torch.compile(Trainer(config).one_step, {options})(torch.randn((2, 4)), 1)",
        f"torch.compile(Net(config), {options})(torch.randn((2, 4)))",
    ]


def test_what_led_to_the_call_goes_with_what_nothing_needs():
    alone, with_settings = proposed(TRAINER, VALUES)[-2:]
    assert "Trainer" not in alone and "logging" not in alone and "__main__" not in alone
    assert alone.startswith("import torch\nconfig = [4]\n\nclass Net(torch.nn.Module):")
    assert "manual_seed" not in alone and with_settings.splitlines()[-2] == "torch.manual_seed(0)"


def test_a_function_that_is_compiled_by_a_decorator_is_called():
    text = "import torch\n\n@torch.compile(backend='eager')\ndef f(x):\n    return x\nfor x in [1]:\n    f(x)"
    assert [one.splitlines()[-1] for one in proposed(text, {"def f(x)": "2"})] == ["f(2)", "f(2)"]


def test_a_method_is_not_called_on_what_only_an_object_knows():
    text = TRAINER.replace("Net(config)", "Net(self.sizes)").replace("Trainer(config)", "Trainer(config)")
    assert "torch.compile(Net(), backend='eager', fullgraph=False)(torch.randn((2, 4)))" in [
        one.splitlines()[-1] for one in proposed(text, VALUES)
    ]


def test_nothing_is_proposed_without_a_compiler_or_known_arguments():
    assert proposed("def f(x):\n    return x\nf(1)", {"def f(x)": "1"}) == []
    assert proposed("import torch\ndef f(x):\n    return x\ntorch.compile(f)(object())", {}) == []
