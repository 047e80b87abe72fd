"""`dynadiag rule`: every code has something to say, in text and JSON, without torch; an unknown one is one line and exit status 2."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dynadiag.advice.graph_breaks import RULES
from dynadiag.advice.reasons import REASONS
from dynadiag.errors import UsageError
from dynadiag.model.codes import TABLE
from dynadiag.rules.libraries.names import package_names
from dynadiag.rules.rule import as_dict, as_text, find_rule, listing
from dynadiag.rules.torch_breaks import made_from, torch_ids
from dynadiag_cli.app import app


def run(*words):
    return CliRunner().invoke(app, ["rule", *words])


def test_torchs_own_words_and_its_page_stand_beside_our_advice():
    done = run("GB0170")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "GB0170  Data-dependent branching"
    assert (
        "  Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`). Dynamo does not support tracing dynamic control flow."
        in lines
    )
    assert lines[-1] == "https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0170.html"
    titles = [section["title"] for section in json.loads(run("GB0170", "--json").stdout)[0]["sections"]]
    assert titles == ["torch says", "Hints of torch", "dynadiag advises", "Cost"]


@pytest.mark.parametrize("name", ["gb0170", "GB170", "170", " gb0170 "])
def test_ids_are_found_as_people_type_them(name):
    assert find_rule(name).code == "GB0170"


def test_a_mutation_shows_its_page_with_code_that_can_be_copied():
    text = as_text(find_rule("DM05"))
    assert [line for line in text.splitlines() if line and not line.startswith(" ")][1:] == ["What", "Why", "Cost", "Fix"]
    assert "\n      x = x.t()\n" in f"{text}\n" and "```" not in text and "](" not in text


def test_words_are_folded_for_a_terminal_and_code_is_not():
    text = as_text(find_rule("DR01"), 40)
    assert all(len(line) <= 40 for line in text.splitlines()[1:] if not line.startswith("      "))
    assert '      out = [step(torch.ones(3), "m" * n) for n in range(1, 12)]' in text.splitlines()
    assert " ".join(text.split()) == " ".join(as_text(find_rule("DR01")).split())
    hints = as_text(find_rule("GB0170"), 60).splitlines()
    assert (
        "  - This graph break is fundamental - it is unlikely that" in hints
        and "    Dynamo will ever be able to trace through your code." in hints
    )


def test_every_code_has_words():
    codes = [code for code, _ in listing()]
    assert {*TABLE, *RULES, *REASONS} <= set(codes) and len(codes) == len(set(codes))
    assert len(codes) == len(TABLE) + len(torch_ids()) + len(package_names())
    for code in codes:
        rule = find_rule(code)
        # Of three ids torch gives no words but the type (GB0010, GB0083, GB0112).
        assert rule.title and (rule.sections or code.startswith("GB")), code
        assert all(title and text.strip() for title, text in rule.sections), code
        assert "**" not in as_text(rule) or code.startswith("GB"), code
        json.dumps(as_dict(rule))


def test_an_unknown_code_names_those_that_look_like_it():
    with pytest.raises(UsageError, match=r"no code 'DM55': did you mean DM50 or DM45 or DM35"):
        find_rule("DM55")
    with pytest.raises(UsageError, match="`dynadiag rule` lists all"):
        find_rule("\x1b[31m" + "?" * 5000)


def test_the_command_needs_no_torch_and_says_what_is_wrong_in_one_line():
    program = "import sys; sys.modules['torch'] = None; from dynadiag_cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "rule", "GB0170", "DM34"], capture_output=True, text=True)
    assert done.returncode == 0 and "GB0170" in done.stdout and "DM34" in done.stdout
    done = subprocess.run([sys.executable, "-c", program, "rule", "\x1b[31mGB-1"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("dynadiag: error: no code ") and done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr and done.stdout == ""


def test_of_a_registry_the_newest_wording_that_is_text_is_kept():
    def wording(kind, explanation, *hints):
        return {"Gb_type": kind, "Context": "", "Explanation": explanation, "Hints": list(hints)}

    newest = {
        "GB0001": [wording("_gb_type", "_explanation"), wording("A type", '"Cannot do {x}, "   + f"because \\"y\\"" + info', " a \n b ")]
    }
    older = {"GB0001": [wording("Old", "Old words")], "GB0002": [wording("Gone", "")]}
    made = made_from([newest, older])
    assert made["GB0001"] == {"type": "A type", "explanation": 'Cannot do {x}, because "y"', "hints": ["a b"]}
    assert made["GB0002"] == {"type": "Gone", "explanation": "", "hints": []}
    assert "BSD-3-Clause" in made[""]
