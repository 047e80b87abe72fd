"""Each advice on a graph break is tried: the break is there before, gone after (or what remains is said), and the results are equal.

One child process runs all tables (`table_*.py`, read `advice_cases.py` for what a case is) under the recorder; the tests read its run.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.advice.graph_breaks import RULES, advised, break_advice
from dynadiag.source.line import parse_line
from dynadiag.trace import load

HERE = Path(__file__).parent
TABLES = sorted(HERE.glob("table_*.py"))
MATRIX = HERE.parents[1] / "corpus" / "graph_breaks" / "matrix.py"
# The first advice for each function of the corpus that breaks.
MATRIX_SLUGS = {
    "prints": "print-reorder",
    "branches_on_data": "if-where",
    "reads_a_scalar": "item-keep-tensor",
    "breaks_in_a_loop": "graph-break-remove",
    "calls_a_breaking_function_twice": "graph-break-remove",
    "breaks_under_no_grad": "graph-break-remove",
}


def case_names():
    for table in TABLES:
        for node in ast.parse(table.read_text()).body:
            if isinstance(node, ast.ClassDef) and any(isinstance(item, ast.FunctionDef) and item.name == "before" for item in node.body):
                yield f"{table.stem}-{node.name}"


class Recorded:
    """The run of all cases: per case what the child said, and the break events of each attempt by its reset epoch."""

    def __init__(self, folder: Path):
        answer = folder / "answer.json"
        command = [sys.executable, str(HERE / "run_advice_cases.py"), str(folder / "run"), str(answer), str(MATRIX), *map(str, TABLES)]
        child = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert child.returncode == 0, child.stderr[-4000:]
        said = json.loads(answer.read_text())
        self.torch = said["torch"]
        self.cases = {f"{table}-{case['name']}": case for table, cases in said["tables"].items() for case in cases}
        self.matrix = {case["name"]: case for case in said["matrix"]}
        self.run = load(folder / "run")
        self.events: dict[int, list] = {}
        for event in self.run.breaks:
            self.events.setdefault(self.run.frame(event.frame).key.epoch, []).append(event)
        self.captured = {self.run.frame(graph.frame).key.epoch for graph in self.run.graphs if graph.frame is not None}

    def ids(self, epoch):
        return {event.gb_id or "none" for event in self.events.get(epoch, [])}

    def advice(self, case):
        return [advice for event in self.events.get(case["epoch"], []) for advice in break_advice(event, self.run)]

    def expected(self, case):
        return set(case["breaks"] if newest(self.torch) else case["breaks_old"])


def newest(version):
    return tuple(int(part) for part in version.split(".")[:2]) >= (2, 15)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("advice"))


def squeezed(text):
    """Text without blanks, with one kind of quotes, and with the harness's name for torch.compile."""
    return "".join(text.split()).replace("'", '"').replace("torch.compile(", "compiled(")


def contains_in_order(source, after):
    """Whether the pieces of an advice's `after` ("..." is left to the reader) are in the source in this order."""
    position = 0
    for piece in squeezed(after).split("..."):
        found = source.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return True


@pytest.mark.parametrize("name", list(case_names()))
def test_the_break_is_there_before_and_its_advice_cures_it(recorded, name):
    case = recorded.cases[name]
    assert case["error"] is None
    assert recorded.ids(case["epoch"]) == recorded.expected(case)
    given = recorded.advice(case)
    for slug, cure in case["cures"].items():
        if not recorded.expected(case) or (cure["only"] and not recorded.torch.startswith(cure["only"])):
            assert slug not in {advice.slug for advice in given}
            continue
        advice = next((advice for advice in given if advice.slug == slug), None)
        assert advice is not None, f"{slug} is not among {[advice.slug for advice in given]}"
        assert cure["error"] is None
        assert recorded.ids(cure["epoch"]) == set(cure["remains"]), f"{slug} leaves breaks"
        assert cure["epoch"] in recorded.captured, f"with {slug} nothing is compiled"
        applied = cure["source"] + cure["setup"]
        assert contains_in_order(squeezed(applied), advice.after or ""), f"{slug} says {advice.after!r}, the test did {applied}"
        assert all(option in applied for option in advice.options)


@pytest.mark.slow  # what records all cases
def test_every_event_gets_advice_or_a_reason_of_its_own(recorded):
    without = [
        (name, event.gb_id, event.gb_type)
        for name, case in recorded.cases.items()
        for event in recorded.events.get(case["epoch"], [])
        if advised(event, recorded.run) == ((), "dynadiag knows no change that removes this break")
    ]
    assert without == []


def test_no_event_gets_more_than_two(recorded):
    assert max(len(break_advice(event, recorded.run)) for event in recorded.run.breaks) == 2


def test_the_corpus_gets_the_advice_that_fits(recorded):
    first = {
        name: {advice.slug for event in recorded.events.get(case["epoch"], []) for advice in break_advice(event, recorded.run)[:1]}
        for name, case in recorded.matrix.items()
    }
    assert first == {name: {MATRIX_SLUGS[name]} if name in MATRIX_SLUGS else set() for name in recorded.matrix}


def test_the_advice_names_the_line(recorded):
    """Each `before` is a line that was recorded, without its comment, and `after` is what to write there: nothing is left to fill in."""
    codes = {parse_line(location.code).code for event in recorded.run.breaks for location in event.stack}
    for case in recorded.cases.values():
        for advice in recorded.advice(case):
            first = (advice.before or "").partition("\n")[0]
            assert advice.before is None or (parse_line(first).code in codes and advice.after is not None)
            assert "..." not in (advice.after or "") and "<" not in (advice.after or "").replace("<=", "").replace(" < ", "")


def test_a_rewrite_taken_word_for_word_is_what_was_tried(recorded):
    """The source of a case with `before` replaced by `after` is the function that was run, for each rewrite of a whole line."""
    for name, case in recorded.cases.items():
        for advice in recorded.advice(case):
            cure = case["cures"].get(advice.slug)
            if advice.before is None or cure is None or cure["drives"]:
                continue
            assert squeezed(advice.after) in squeezed(cure["source"]), f"{name}: {advice.after}"


def test_every_advice_given_was_tried_by_a_case(recorded):
    tried = {slug for case in recorded.cases.values() for slug in case["cures"]}
    given = {advice.slug for case in recorded.cases.values() for advice in recorded.advice(case)}
    assert given - tried == set()


def test_every_rule_was_tried_on_at_least_one_type():
    tried = {gb_id for table in TABLES for gb_id in re.findall(r"GB\d{4}", table.read_text())}
    assert [gb_id for gb_id, rules in RULES.items() if not any(set(rules) & set(RULES[other]) for other in tried & set(RULES))] == []


def test_only_options_of_the_torch_that_ran_are_named(recorded):
    process = recorded.run.processes[0]
    for case in recorded.cases.values():
        for advice in recorded.advice(case):
            for option in advice.options:
                area = "dynamo" if option.startswith("torch._dynamo.config.") else "compiler"
                assert option.rpartition(".")[2] in process.option_names[area]
            assert "if your torch has" not in advice.text


def test_what_an_inlined_function_says_later_is_lost(recorded, capsys):
    """Dynamo replays what the compiled function itself says, and nothing that it inlines: there the option is not advised."""
    import torch

    def report(x):
        print("inlined")
        return x + 1

    def step(x):
        print("itself")
        return report(x)

    with torch._dynamo.config.patch(reorderable_logging_functions={print}):
        torch.compile(step, backend="eager")(torch.ones(2))
    assert capsys.readouterr().out == "itself\n"
    given = recorded.advice(recorded.cases["table_printing-prints_in_an_inlined_function"])
    assert {one.slug for one in given} == {"print-guard"}
