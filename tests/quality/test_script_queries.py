"""How small a script gets and how many questions that takes: bounds, so that neither grows unseen."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

TRAINING = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        if x.mean() > 0:
            x = x + 1
        return self.head(x)


def main(depth=6):
    model = Net(16, depth)
    compiled = torch.compile(model, backend="aot_eager")
    for step in range(3):
        compiled(torch.randn(8, 16)).sum().backward()


if __name__ == "__main__":
    main()
"""
MOST_STATEMENTS, MOST_QUERIES = 7, 220


def test_a_training_script_is_reduced_to_its_break_in_few_questions():
    from dynadiag.reduce.scripts.hunting import ScriptOptions, hunt_script
    from dynadiag.reduce.scripts.program import parsed
    from dynadiag.reduce.scripts.worker import warm_up

    warm_up()
    found = hunt_script(parsed(TRAINING, "script.py"), ScriptOptions(kind="graph_break", match="GB0170"))
    assert found.complete and found.confirmed.failure.message.startswith("GB0170 ")
    assert found.original.statements == 20 and found.best.statements <= MOST_STATEMENTS, found.best.text
    assert sum(found.queries.values()) <= MOST_QUERIES, found.queries
    assert "Linear" not in found.best.text
