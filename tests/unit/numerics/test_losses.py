"""Losses compared: the band of eager's rounding, the search for the graph, and what is said of them; the runs are made up."""

import json
import math
from pathlib import Path

import jsonschema
import pytest

from dynadiag.numerics.loss_band import WIDTHS, LossBand, guilty_graph
from dynadiag.numerics.result import NumericsResult
from dynadiag.numerics.showing import document_of
from dynadiag.numerics.whole_run import WholeRun, _Run
from dynadiag.record import Target
from dynadiag.render.page import text_of

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "numerics.schema.json").read_text())
EAGER = (1.0, 0.5, 0.25, 0.125)
NOISY = (1.0, 0.5001, 0.25, 0.125)


def test_an_error_of_rounding_stays_for_later_steps_but_not_for_earlier_ones():
    band = LossBand(EAGER, [NOISY])
    assert band.rounding(0) < 1e-6
    assert band.rounding(1) == pytest.approx(WIDTHS * 1e-4, rel=1e-2)
    assert band.rounding(3) == pytest.approx(WIDTHS * 1e-4, rel=1e-2)


@pytest.mark.parametrize(
    ("losses", "step"),
    [
        (EAGER, None),
        ((1.0, 0.5, 0.2505, 0.125), None),
        ((1.0001, 0.5, 0.25, 0.125), 0),
        ((1.0, 0.5, 0.25, 0.2), 3),
        ((1.0, 0.5, math.nan, 0.125), 2),
        ((1.0, 0.5), 2),
    ],
)
def test_a_curve_leaves_the_band_at_its_first_step_outside(losses, step):
    assert LossBand(EAGER, [NOISY]).leaves_at(losses) == step


def test_losses_that_are_no_numbers_in_eager_either_are_no_difference():
    assert LossBand((1.0, math.nan), [(1.0, math.nan)]).leaves_at((1.0, math.nan)) is None


@pytest.mark.parametrize(("guilty", "found"), [({4}, 4), ({0}, 0), (set(), None), ({1, 6}, 1)])
def test_the_graph_is_found_by_halves(guilty, found):
    asked = []

    def stays_with(kept):
        asked.append(kept)
        return not guilty & set(kept)

    assert guilty_graph(range(8), stays_with) == found
    assert len(asked) <= 7


def test_graphs_that_are_wrong_only_together_are_not_blamed_alone():
    assert guilty_graph(range(4), lambda kept: not {1, 2} <= set(kept)) is None


def compared(monkeypatch, losses):
    """The outcome for runs whose losses a function of their settings gives."""
    monkeypatch.setattr(WholeRun, "_run", lambda self, words, **settings: self.done.append(words) or _Run(losses(**settings), (0, 1, 2)))
    run = WholeRun(Target(kind="script", argv=("train.py",)), Path(), 4, 60.0, lambda text: None)
    curve = run.compare()
    result = NumericsResult(program="train.py", torch="2.15.0", graphs=(), curve=curve)
    jsonschema.validate(json.loads(json.dumps(result.to_json("0"))), SCHEMA)
    return curve, result.exit_code, " ".join(text_of(document_of(result)).split())


def wrong_graphs(graphs, *, random=False, shifted=(2.0, 1.0, 0.5, 0.25)):
    def losses(*, eager=False, noise=0, shift=0, same_random=False, eager_graphs=()):
        if eager:
            return NOISY if noise else shifted if shift else EAGER
        wrong = (random and not same_random) or set(graphs) - set(eager_graphs)
        return (1.0, 0.5, 0.26, 0.2) if wrong else EAGER

    return losses


def test_losses_that_are_equal_take_two_runs(monkeypatch):
    curve, status, text = compared(monkeypatch, wrong_graphs(()))
    assert (curve["outcome"], status, len(curve["runs"]), curve["steps"][0]["rounding"]) == ("equal", 0, 2, None)
    assert "Losses equal to the bit: 4 steps" in text


def test_the_graph_that_makes_the_losses_leave_is_named_with_the_step(monkeypatch):
    curve, status, text = compared(monkeypatch, wrong_graphs((1,)))
    assert (curve["outcome"], curve["graph"], curve["leaves_at"], curve["others_stay"], status) == ("graph", 1, 3, True, 1)
    assert "Losses leave eager's: by the compilation of graph-1 alone: from step 3" in text and "it stays inside" in text
    assert curve["steps"][2]["seeds"] == 0.25 and len(curve["runs"]) == len(set(curve["runs"]))


def test_other_random_numbers_are_named_and_no_fault(monkeypatch):
    curve, status, text = compared(monkeypatch, wrong_graphs((), random=True))
    assert (curve["outcome"], curve["graph"], status) == ("random_numbers", None, 0)
    assert "Losses differ by random numbers" in text


def test_what_differs_with_each_graph_in_eager_is_in_no_graph(monkeypatch):
    curve, status, _ = compared(
        monkeypatch, lambda *, eager=False, noise=0, **_: NOISY if noise else EAGER if eager else (1.0, 0.5, 0.3, 0.2)
    )
    assert (curve["outcome"], curve["graph"], status) == ("tracing", None, 1)
