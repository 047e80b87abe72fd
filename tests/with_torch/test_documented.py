"""README.md and docs/: the commands that read a recording, and the examples in Python, with one recording for all."""

import ast

import pytest
import torch
from typer.testing import CliRunner

import dynadiag
from dynadiag_cli.app import app
from tests.documented import blocks, commands, project, reads


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented") / "made"
    project(folder)
    return folder


@pytest.mark.any_torch
@pytest.mark.xdist_group("documented")
def test_commands_that_read_a_recording_do_what_they_say(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setattr("webbrowser.open", lambda *_: True)
    wanted = {" ".join(words[1:]): words[1:] for _, words in commands() if reads(words)}
    ended = {}
    for name, words in wanted.items():
        done = CliRunner().invoke(app, words)
        expected = (0, 1) if words[0] in ("check", "diff") else (0,)
        if done.exit_code not in expected or not isinstance(done.exception, SystemExit | None):
            ended[name] = (done.exit_code, repr(done.exception), done.output[-500:])
    assert len(wanted) > 15 and ended == {}


@pytest.mark.any_torch
@pytest.mark.xdist_group("documented")
def test_the_examples_in_python_run(made, monkeypatch, capsys):
    """Those of the README without `fix` and `assert_warm_start`, which are tested elsewhere, and the oracle of docs/minify.md."""
    monkeypatch.chdir(made)

    def plain(x):
        return x.relu() * 2

    def fails(graph_module, inputs):
        if "relu" in graph_module.code:
            raise RuntimeError("the message")
        return graph_module

    torch._dynamo.register_backend(fails, name="my_backend")
    fn, x = torch.compile(plain, backend="eager"), torch.ones(3)
    gm = torch.fx.symbolic_trace(plain)
    given = {"fn": fn, "x": x, "train": lambda: fn(x), "step": plain, "gm": gm, "inputs": [x]}
    readme = dict(given, still_fails=lambda graph_module, inputs: "relu" in graph_module.code)
    for statement in ast.parse(blocks("README.md", "python")[0]).body:
        if not any(f"dynadiag.{name}(" in ast.unparse(statement) for name in ("fix", "assert_warm_start")):
            exec(compile(ast.Module([statement], []), "README.md", "exec"), readme)
    assert readme["report"].summary.graph_break_sites == 1 and (made / "my-run").is_dir()
    assert [node.op for node in readme["smallest"].graph_module.graph.nodes] == ["placeholder", "call_method", "output"]
    told = capsys.readouterr().out
    (oracle,) = [block for block in blocks("docs/minify.md", "python") if "my_backend" in block]
    exec(compile(oracle, "docs/minify.md", "exec"), dict(given))
    assert "relu" in told and "relu" in capsys.readouterr().out and dynadiag.Verdict.INTERESTING
