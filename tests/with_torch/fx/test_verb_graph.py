"""`dynadiag graph` from the command line: what it writes, and its one line and exit status for bad input."""

import json

import pytest

from dynadiag.record.directory import write_marker
from tests.command_here import command_here

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 4][4, 1]cuda:0", L_cache_: "f32[4, 4][4, 1]cuda:0"):
        l_x_ = L_x_
        l_cache_ = L_cache_

        # File: /a/train.py:12 in step, code: cache.add_(x)
        add_: "f32[4, 4][4, 1]cuda:0" = l_cache_.add_(l_x_);  add_ = None
        sin: "f32[4, 4][4, 1]cuda:0" = l_x_.sin();  l_x_ = None
        return (sin,)
"""
HOSTILE = GRAPH.replace("l_x_.sin()", "__import__('os').system('touch CANARY')")


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "dedicated_log_torch_trace_1.log"
    lines = []
    for number, text in enumerate((GRAPH, HOSTILE)):
        metadata = {"dynamo_output_graph": {}, "frame_id": number, "frame_compile_id": 0, "attempt": 0, "has_payload": "0"}
        lines += [f"V1121 07:22:11.076000 3362 torch/_dynamo/output_graph.py:1] {json.dumps(metadata)}"]
        lines += [f"\t{line}" for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*arguments, cwd):
    return command_here("graph", *arguments, cwd=cwd)


@pytest.mark.any_torch  # the script itself is run in test_script.py
def test_graph_becomes_a_script_and_a_picture(log, tmp_path):
    done = run(f"{log}#g0", "--device", "cpu", "--try", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "output[0]: float32 (4, 4) on cpu\n")
    assert sorted(item.name for item in (tmp_path / "out").iterdir()) == ["g0-graph.gv", "g0-graph.svg", "g0.py"]
    source = (tmp_path / "out" / "g0.py").read_text()
    assert "dynadiag." not in source and "# /a/train.py:12 in step: cache.add_(x)" in source


@pytest.mark.any_torch
def test_svg_draws_the_graph_and_nothing_else(log, tmp_path):
    done = run(f"{log}#g0", "--svg", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "") and "wrote out/g0-" in done.stderr
    dot, picture = sorted((tmp_path / "out").iterdir())
    assert ">writes " in picture.read_text()
    assert dot.suffix == ".gv" and "writes " in dot.read_text()


@pytest.mark.any_torch
def test_format_prints_all_nodes_for_other_tools_and_writes_nothing(log, tmp_path):
    done = run(f"{log}#g0", "--format", "json", cwd=tmp_path)
    assert done.returncode == 0 and list(tmp_path.iterdir()) == [log]
    content = json.loads(done.stdout)
    assert {node["op"] for node in content["nodes"]} >= {"placeholder", "output"}
    assert content["critical_path"]["of"] >= len(content["critical_path"]["calls"]) >= 1
    wrong = run(f"{log}#g0", "--format", "gexf", cwd=tmp_path)
    assert wrong.returncode == 2 and "not one of dot, graphml, json" in wrong.stderr


@pytest.mark.any_torch
def test_the_script_of_a_strangers_log_is_not_run_unless_asked(log, tmp_path):
    (tmp_path / "dynadiag-run.json").write_text(json.dumps({"format": 1, "dynadiag": "1", "seal": {"at_ns": 2**62, "code": "0" * 64}}))
    for place in (log, tmp_path):
        done = run(str(place), "g0", "--device", "cpu", "--no-picture", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "") and "g0.py was not run" in done.stderr and "--try runs it" in done.stderr


@pytest.mark.any_torch  # the script itself is run in test_script.py
def test_the_script_of_a_run_recorded_here_is_run(log, tmp_path):
    write_marker(tmp_path, {"dynadiag": "1"})
    done = run(str(tmp_path), "g0", "--device", "cpu", "--no-picture", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "output[0]: float32 (4, 4) on cpu\n")


@pytest.mark.any_torch
def test_a_dtype_that_is_code_is_refused_in_one_line(log, tmp_path):
    attack = 'float32) if not __import__("os").system("touch CANARY") else torch.zeros((4,'
    inputs = [{"name": "l_x_", "shape": [4, 4], "stride": [4, 1], "dtype": attack, "device": "cpu"}]
    header = {
        "artifact": {"name": "dynadiag_graph", "encoding": "json"},
        "frame_id": 0,
        "frame_compile_id": 0,
        "attempt": 0,
        "has_payload": "0",
    }
    first, second = log.read_text().split("V1121 07:22:11.076000 3362 torch/_dynamo/output_graph.py:1] ")[1:]
    head = "V1121 07:22:11.076000 3362 torch/_dynamo/output_graph.py:1] "
    details = f"{json.dumps(header)}\n\t{json.dumps({'graph': 0, 'inputs': inputs})}\n"
    log.write_text(f"{head}{first}{head}{details}{head}{second}")
    done = run(str(log), "g0", "--device", "cpu", "--no-picture", "--try", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "g0 cannot be rebuilt" in done.stderr
    assert [item.name for item in tmp_path.iterdir()] == [log.name]


@pytest.mark.any_torch
def test_hostile_graph_is_refused_by_name(log, tmp_path):
    done = run(str(log), "g1", "--no-picture", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "g1 cannot be rebuilt" in done.stderr and "it contains `__import__('os')` (Call)" in done.stderr
    assert [item.name for item in tmp_path.iterdir()] == [log.name]


@pytest.mark.any_torch
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["LOG"], "which graph"),
        (["LOG", "g7"], "has no graph 'g7'; it has g0 to g1"),
        (["LOG#../g0"], "has no graph"),
        (["nosuch", "g0"], "nosuch"),
        (["LOG", "g0", "--device", "toaster"], "toaster"),
        (["LOG", "g0", "-o", "LOG"], "cannot be created"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(log, tmp_path, arguments, said):
    done = run(*(argument.replace("LOG", log.name) for argument in arguments), cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("dynadiag: error: ")


@pytest.mark.any_torch
def test_file_that_is_not_ours_is_kept(log, tmp_path):
    (tmp_path / "g0.py").write_text("import mine\n")
    done = run(str(log), "g0", "--device", "cpu", "--no-picture", "--no-try", cwd=tmp_path)
    assert done.returncode == 2 and "was not written by dynadiag graph" in done.stderr
    assert (tmp_path / "g0.py").read_text() == "import mine\n"
