"""What is advised for strangers' programs about which something false was once said, and what following it by an option gives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import dynadiag

PROGRAMS = Path(__file__).with_name("advice_programs.py")
# By program the established advice on it; a reason stands for none where a finding has to say why.
ADVISED = {
    "pads_odd_sizes": {"mark-dynamic": "at least 1 of these 3"},  # two ends of three were said: each side of a condition has a version
    "prints_its_shape_once": {"print-reorder": ""},  # a flag that the first call sets recompiles as well, whatever is marked
    "crops_that_are_equal_at_first": {},  # equal sizes are one symbol, so the second call recompiles, marked or not
    "warms_up_for_three_calls": {"unspec-int-on-module": "3 versions"},
    "corrects_its_bias": {"unspec-int-on-module": "ends 7 of these 8"},
    "fills_a_ring_buffer": {"unspec-int-on-module": "ends 2 of these 3"},
    "writes_one_column_a_call": "No change is established",
    "checks_in_a_helper": {"if-check": ""},
    "logs_under_written_names": {"item-capture": ""},
    "logs_under_names_of_each_call": "may need a Python number",
    "differentiates_twice": {"trace-grad": "begins after `x = x.requires_grad_()`"},
    "skips_a_loss_that_is_not_finite": "becomes NaN",
    "keeps_degrees_by_size": "may make a container larger",
    "reads_its_count_on_the_line_of_the_call": "Nothing is advised",
    "reads_its_count_in_a_helper": "Nothing is advised",
    "only_counts_its_calls": {"count-outside": "all 8 recompiles"},
    "weighs_classes_by_their_number": "checks the length of its `weight`",
    "adds_counts_to_a_buffer": {"shape-capture": ""},
    "standardises_what_it_selects": "`s.std()` may fail in a graph",
    "asks_for_the_length_in_a_helper": "`shown(s)` may need that length",
    "writes_a_part_by_out": {"out-assigned": ""},
    "gets_other_settings_each_time": "dynamic now",
    "writes_behind_a_print": {"print-guard": "changes the program"},
    "keeps_priorities_by_place": "may need a Python number",
    "rotates_a_queue_of_its_own": "files, streams or processes",
}
# By program the graph breaks and recompiles without the option that is advised, and with it.
CURED = {
    "warms_up_for_three_calls": ((0, 8), (0, 2)),
    "corrects_its_bias": ((0, 8), (0, 1)),
    "fills_a_ring_buffer": ((0, 3), (0, 1)),
    "writes_one_column_a_call": ((0, 5), (0, 5)),  # what is not advised ends nothing
    "logs_under_written_names": ((3, 0), (0, 1)),  # the dictionary is empty in the first call
    "differentiates_twice": ((3, 0), (1, 0)),
    "adds_counts_to_a_buffer": ((2, 0), (0, 0)),
}


class Recorded:
    def __init__(self, folder):
        done = subprocess.run([sys.executable, PROGRAMS, folder], capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-2_000:]
        self.folder, self.answers = folder, json.loads((folder / "answers.json").read_text())
        self.reports = {path.name: dynadiag.load(path) for path in folder.iterdir() if path.is_dir()}

    def counts(self, name):
        report = self.reports[name]
        return sum(site.events for site in report.graph_breaks), len(report.recompiles)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return Recorded(tmp_path_factory.mktemp("advice"))


@pytest.mark.parametrize("name", ADVISED)
def test_the_advice_and_the_reason_for_none(recorded, name):
    findings, expected = recorded.reports[name].findings, ADVISED[name]
    found = {advice.slug: advice.words for finding in findings for advice in finding.fix if advice.how_sure != "idea"}
    if isinstance(expected, str):
        assert found == {} and any(expected in finding.why for finding in findings)
    else:
        assert found.keys() == expected.keys() and all(text in found[slug] for slug, text in expected.items())


@pytest.mark.parametrize("name", CURED)
def test_what_the_option_does(recorded, name):
    if len(recorded.answers[name]) < 2:
        pytest.skip("this torch does not have the option")
    before, after = CURED[name]
    assert (recorded.counts(name), recorded.counts(f"{name}__cured")) == (before, after)
    assert recorded.answers[name][0] == recorded.answers[name][1]


def test_an_object_that_is_another_one_in_each_call_is_not_called_changed(recorded):
    """A frozen dataclass, of which nothing can change."""
    assert recorded.reports["gets_other_settings_each_time"].mutations == ()


def test_every_program_is_looked_at(recorded):
    assert set(recorded.answers) == set(ADVISED)
