"""Where a graph alone does not show the failure, `dynadiag minify` goes on with the script: when it does, and what it then looks for."""

from __future__ import annotations

import json

import pytest

from dynadiag.errors import DynadiagError, NothingFoundError, UsageError
from dynadiag.record import Target
from dynadiag.reduce import minification, session
from dynadiag.reduce.core.failure import Failure, said_by
from dynadiag.reduce.core.reduction import Options
from dynadiag.reduce.graphs.loading import NOT_REBUILT
from dynadiag.reduce.graphs.reduction import PASSES_ALONE
from dynadiag.reduce.scripts.reduction import LIMITS, _is_meant
from dynadiag.reduce.session import SessionOptions
from dynadiag.reduce.sources.failing_script import NO_GRAPH_FAILED, NOT_CAPTURED, Suspect
from dynadiag_cli.minify_output import Terminal

SAID = said_by("my.module.FoundError", "bad size 12 of layer_3")


def failure(kind="compile_error", name="my.module.FoundError", message="bad size N of layer"):
    return Failure(kind=kind, phase="compile", exceptions=("torch._dynamo.exc.BackendCompilerFailed", name), message=message)


def test_an_exception_is_known_again_by_its_class_and_message():
    assert failure().said() == failure(name="FoundError", message=SAID[1]).said() == SAID
    assert Failure(kind="crash", phase="call", message="SIGSEGV").said() is None


@pytest.mark.parametrize(
    ("found", "asked", "expected"),
    [
        (failure(), {}, True),
        (failure(), {"kind": "runtime_error"}, False),
        (failure(), {"said": SAID}, True),
        (failure(message="another"), {"said": SAID}, False),
        (failure(), {"match": "bad size"}, True),
        (failure(), {"match": "bad sizes"}, False),
        (Failure(kind="exit", phase="run", message="exit 1"), {}, False),
        (Failure(kind="graph_break", phase="trace"), {}, False),
        (Failure(kind="graph_break", phase="trace"), {"kind": "graph_break"}, True),
    ],
)
def test_which_failure_of_a_script_is_meant(found, asked, expected):
    assert _is_meant(found, Options(**asked)) is expected


def test_a_hang_is_waited_for_as_long_as_the_uncompiled_run_suggests():
    hang = Failure(kind="hang", phase="call")
    assert LIMITS.later(hang, took_s=1.0, asked_s=300.0) == 30.0
    assert LIMITS.later(hang, took_s=9.0, asked_s=300.0) == 90.0
    assert LIMITS.later(hang, took_s=9.0, asked_s=20.0) == 20.0
    assert LIMITS.later(failure(), took_s=30.0, asked_s=300.0) == 300.0


@pytest.fixture
def guilty(monkeypatch, tmp_path):
    """Runs `minify` of a script whose graph ends in an error with this slug; gives what the reduction of the script was asked for."""
    (tmp_path / "script.py").write_text("pass\n")
    asked = []

    def run(slug, *, kind="script", ended=None, looking_for=None, fails_itself=True, **options):
        suspect = Suspect(graph=0, phase="compile", call=0, title="FoundError", said=SAID) if fails_itself else None

        def fails(*_):
            raise DynadiagError("the graph alone passes", slug=slug, exit_code=1)

        def reduces(script, arguments, out, options, on_message, *, why, said=None):
            asked.append((options.kind, why, said))
            if ended is not None:
                raise ended
            return {"the script": "reduced"}

        monkeypatch.setattr(minification, "find_and_capture", lambda *_: (suspect, []))
        monkeypatch.setattr(minification, "reduce_captured", fails)
        monkeypatch.setattr(minification, "reduce_script", reduces)
        program = Target(kind, (str(tmp_path / "script.py"),))
        options = SessionOptions(kind=looking_for, **options)
        return minification._Minification(program, tmp_path, options, Terminal())._ladder().unit, *asked

    return run


@pytest.mark.parametrize("slug", [PASSES_ALONE, NOT_REBUILT, NO_GRAPH_FAILED, NOT_CAPTURED])
def test_what_no_graph_shows_goes_on_with_the_script(guilty, slug, capsys):
    assert guilty(slug) == ("statements", (None, "the graph alone passes", SAID))
    assert "dynadiag: the graph alone passes; continuing with the script" in capsys.readouterr().err


@pytest.mark.parametrize(("slug", "options"), [("environment", {}), (PASSES_ALONE, {"kind": "module"}), (PASSES_ALONE, {"resume": True})])
def test_what_a_script_cannot_help_ends_there(guilty, slug, options):
    with pytest.raises(DynadiagError, match="the graph alone passes"):
        guilty(slug, **options)


def test_wrong_numbers_show_in_a_script_only_by_its_own_assertion(guilty):
    with pytest.raises(NothingFoundError, match="it ends well .a script can show wrong_result only through an assertion of its own"):
        guilty(PASSES_ALONE, kind="script", ended=NothingFoundError("it ends well", exit_code=1), looking_for="wrong_result")


def test_a_script_that_ends_well_is_not_asked_for_wrong_numbers(guilty):
    with pytest.raises(NothingFoundError, match="^nothing failed: the script succeeded, and the graph alone passes$") as raised:
        guilty(PASSES_ALONE, looking_for="wrong_result", fails_itself=False)
    assert raised.value.exit_code == 1
    assert guilty(NOT_REBUILT, looking_for="wrong_result", fails_itself=False)[0] == "statements", "it was not compared"


@pytest.mark.parametrize(
    ("before", "known"),
    [
        ({"call": 3, "said": list(SAID), "backward": True}, (3, list(SAID), True)),
        ({"call": "3", "said": [1, 2], "backward": "x"}, (None, None, False)),
        ({}, (None, None, False)),
        ([], (None, None, False)),
    ],
)
def test_what_was_known_of_the_failure_is_known_after_resuming(before, known, tmp_path, monkeypatch):
    (tmp_path / "job.json").write_text(json.dumps(before))
    monkeypatch.setattr(session, "_worked", lambda module, job, out, on_message: job)
    job = session.reduce_captured([], None, tmp_path, SessionOptions(resume=True), print)
    assert (job["call"], job["said"], job["backward"]) == known


def test_a_usage_error_of_the_script_stays_one(guilty):
    with pytest.raises(UsageError):
        guilty(PASSES_ALONE, ended=UsageError("no script"))
