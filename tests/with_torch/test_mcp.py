"""`dynadiag mcp`, driven by the client of the official SDK over stdio."""

import asyncio
import re
import sys

import pytest

from tests.unit.gate.test_check_command import record

SCRIPT = """import torch

def f(x):
    x = x + 1
    print("in f")

print("noise on stdout")
torch.compile(f, backend="eager")(torch.ones(2))
"""


def calls(folder, *wanted, options=()):
    """The tools' names, and what each call answered."""

    mcp = pytest.importorskip("mcp")  # a second: only where it is run

    async def drive():
        server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "dynadiag", "mcp", "--folder", str(folder), *options])
        # By default it is `sys.stderr` at the import of `mcp`, which in a test that captures it is no file.
        async with mcp.Client(mcp.stdio_client(server, errlog=sys.__stderr__)) as client:
            listed = await client.list_tools()
            return {tool.name: tool for tool in listed.tools}, [await client.call_tool(name, words) for name, words in wanted]

    return asyncio.run(asyncio.wait_for(drive(), 600))


@pytest.mark.slow
@pytest.mark.any_torch
def test_a_client_lists_and_calls_the_tools(tmp_path):
    record(tmp_path, tmp_path / "run")
    (tmp_path / "noisy.py").write_text(SCRIPT)
    tools, answers = calls(
        tmp_path,
        ("explain", {"target": "run"}),
        ("explain", {"target": "noisy.py"}),
        ("graph", {"run": "dynadiag-runs/latest", "graph_id": "g0"}),
        ("fix", {"target": "dynadiag-runs/latest"}),
        ("minify", {"target": "noisy.py", "kind": "graph_break"}),
        ("rule", {"codes": ["GB0059"]}),
        ("check", {"target": "run", "max_breaks": 0}),
        ("graph", {"run": "run", "graph_id": "g9"}),
        ("explain", {"target": "missing.py"}),
        ("explain", {"target": "--help"}),
        ("rule", {"codes": ["XX1"]}),
        ("minify", {"target": "missing.py"}),
        ("fix", {"target": "missing.py"}),
        ("start", {"target": "run"}),
        ("start", {"target": "run", "newer": "noisy.py"}),
        ("numerics", {"target": "run"}),
    )
    assert set(tools) == {"explain", "rule", "graph", "fix", "minify", "check", "start", "numerics"}
    assert tools["rule"].annotations.read_only_hint and not tools["fix"].annotations.read_only_hint
    read, ran, graph, fix, minified, rule, check, *errors = answers
    assert "GB0059" in read.content[0].text and read.structured_content["findings"][0]["code"] == "GB0059"
    assert ran.structured_content["summary"]["graph_break_sites"] == 1 and ran.structured_content["run"]["exit_status"] == 0
    assert "noisy.py:5" in ran.content[0].text and len(ran.content[0].text) <= 6_000
    assert "l_x_ + 1" in graph.content[0].text and graph.structured_content["id"] == "g0"
    assert "1 of 1 finding cured and proven" in fix.content[0].text, fix.content[0].text
    assert "+torch._dynamo.config.reorderable_logging_functions.add(print)" in fix.structured_content["patch"]
    assert "proven: it failed in the same way in 3 of 3" in minified.content[0].text, minified.content[0].text
    assert "print(" in minified.structured_content["reproducer_text"] and minified.structured_content["proven"]["reproduced"] == 3
    assert "dynadiag" not in minified.structured_content["reproducer_text"] and minified.structured_content["level"] == "script"
    assert rule.structured_content["rules"][0]["code"] == "GB0059" and "GB0059" in rule.content[0].text
    assert check.structured_content["exit_status"] == 1 and not check.is_error
    assert re.match(r"\S+:5: GB0059 Graph break: .*\n(.*\n)*dynadiag: check: 2 failed", check.content[0].text)
    assert [answer.is_error for answer in errors] == [True] * 9
    said = [answer.content[0].text for answer in errors]
    assert "contains no text of 'g9'" in said[0] and "no such file or folder: missing.py" in said[1] and "'--help' is no script" in said[2]
    assert "two recordings" in said[6] and "noisy.py is no run and no log" in said[7] and "takes the script" in said[8]
    assert len(list((tmp_path / "dynadiag-runs").glob("0*"))) == 2  # of `explain` and `minify`: nothing is left of calls that were refused


def test_a_long_answer_is_cut_and_says_so():
    import json

    from dynadiag_cli.mcp_server import JSON_CHARACTERS, _fitting

    cut = _fitting({"findings": [{"why": "x" * 5000}] * 1000, "n": 1}, "run")
    assert len(json.dumps(cut)) <= JSON_CHARACTERS and cut["n"] == 1 and cut["cut"] == "all of it: run" and cut["findings"]
    assert _fitting({"n": 1}, "run") == {"n": 1}


BRANCH = """import torch


def f(x):
    h = x * 2
    if h.sum() > 1:
        h = h + 1
    return h


step = torch.compile(f, backend="eager")
for number in range(4):
    print(step(torch.arange(3.0) - number).tolist())
"""
EDIT = "\n".join(
    (
        "--- a/train.py",
        "+++ b/train.py",
        "@@ -3,6 +3,5 @@",
        " ",
        " def f(x):",
        "     h = x * 2",
        "-    if h.sum() > 1:",
        "-        h = h + 1",
        "+    h = {}",
        "     return h",
        "",
    )
)


@pytest.mark.any_torch
def test_an_agent_proposes_and_is_told_whether_it_is_right(tmp_path, request):
    """The dialogue of docs/mcp.md behind its explain: a wrong edit, and a right one (this with --whole-corpus)."""
    (tmp_path / "train.py").write_text(BRANCH)
    edits = [EDIT.format("h + 1")]
    if request.config.getoption("--whole-corpus"):
        edits.append(EDIT.format("torch.where(h.sum() > 1, h + 1, h)"))
    wanted = [("prove", {"target": "train.py", "patch": edit}) for edit in edits]
    tools, (wrong, *right) = calls(tmp_path, *wanted, options=["--allow-edits"])
    assert not tools["prove"].annotations.read_only_hint
    assert "NOT PROVEN: " in wrong.content[0].text and wrong.structured_content["verdict"] == "NOT_PROVEN", wrong.content[0].text
    assert "after call 2 of f: output" in wrong.structured_content["why_not"]
    for answer in right:
        assert answer.structured_content["verdict"] == "PROVEN", answer.content[0].text
        assert [finding["code"] for finding in answer.structured_content["cured"]] == ["GB0170"]
        assert answer.structured_content["before"]["graph_break_sites"] == 1 > answer.structured_content["after"]["graph_break_sites"]
    assert (tmp_path / "train.py").read_text() == BRANCH
