"""Plain text logs: what people paste in issues, with and without what stood in front of the lines."""

import pytest

from dynadiag.model.location import Location
from dynadiag.trace import graph_nodes, load, read_payload

HEAD = "V1121 07:59:14.364000 27153 torch/_dynamo/symbolic_convert.py:5577] [{id}] [__graph_breaks] "
DUPLICATE = """Graph break (user stack suppressed due to duplicate graph break) in user code at /home/me/train.py:5
Graph Break Reason: Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print`

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0059.html"""
RECOMPILE = """Recompiling function f in /home/me/train.py:3
    triggered by the following guard failure(s):
    - 0/1: n == 2   # return x * n
    - User stack trace:
    -   File "/home/me/train.py", line 4, in f
    - 0/0: n == 1   # return x * n"""


def text_log(break_text, style):
    plain = break_text.partition("\nTraceback (most")[0]
    found = []
    for compile_id, message, place in (("0/0", plain, "a.py:1"), ("0/1", RECOMPILE, "b.py:2"), ("0/1", DUPLICATE, "c.py:3")):
        head = f"V1121 07:59:14.364000 27153 torch/_dynamo/{place}] [{compile_id}] [__x] "
        for line in message.split("\n"):
            found.append(style(head, line))
        found.append("loss 3.14")
    return "\n".join(found)


STYLES = {
    "prefixed": lambda head, line: head + line,
    "rank": lambda head, line: f"[rank1]:{head}{line}",
    "torchrun": lambda head, line: f"[default1]:{head}{line}",
    "colour": lambda head, line: f"\x1b[33m{head}{line}\x1b[0m",
    "bare": lambda head, line: line,
}


@pytest.mark.parametrize("style", STYLES)
def test_the_same_facts_in_every_style(tmp_path, break_text, style):
    path = tmp_path / "issue.txt"
    path.write_text(text_log(break_text, STYLES[style]))
    run = load(path)
    assert len(run.breaks) == 2
    for event in run.breaks:
        assert event.gb_id == "GB0059" and event.source == "text"
        assert event.torch_frame == Location("/home/me/train.py", 5, "f", 'print("x")')
        assert [place.line for place in event.stack] == [9, 5]
    (recompile,) = run.recompiles
    assert [reason.partition("   #")[0] for reason in recompile.reasons] == ["0/1: n == 2", "0/0: n == 1"]
    assert "User stack trace" in recompile.reasons[0]
    assert run.processes[0].rank == (1 if style in ("rank", "torchrun") else None)
    if style != "bare":
        assert [(frame.key.text, frame.name, frame.outcome) for frame in run.frames] == [("0/0", "f", "broke"), ("0/1", "f", "broke")]
    else:  # the reasons of the recompile tell its id
        assert [(frame.key.text, frame.name, frame.outcome) for frame in run.frames] == [("-/-", "f", "broke"), ("0/2", "f", "broke")]


def test_limit_suppressed_error_guards_and_graph(tmp_path, graph_text):
    def block(place, compile_id, text, level="W"):
        where = f" [{compile_id}]" if compile_id else ""
        return [f"{level}1121 07:59:59.107000 27332 torch/_dynamo/{place}]{where} {line}" for line in text.split("\n")]

    limit = (
        "torch._dynamo hit config.recompile_limit (8)\n   function: 'many' (/tmp/fg.py:21)\n   last reason: 0/7: n == 7\nTo log all, use X."
    )
    wont = (
        "WON'T CONVERT g /tmp/fg.py line 18 \ndue to: \nTraceback (most recent call last):\n"
        "  File \"/x.py\", line 3, in y\n    z\ntorch._dynamo.exc.BackendCompilerFailed: backend='b' raised:\nRuntimeError: no\n"
    )
    guards = "TREE_GUARD_MANAGER:\n+- RootGuardManager\n| +- TENSOR_MATCH: check_tensor(L['x'])  # a\n"
    lines = block("convert_frame.py:1", "0/8", limit) + block("convert_frame.py:2", None, wont)
    lines += block("guards.py:3", "1/0", guards, "V") + block(
        "output_graph.py:4", "1/0_1", "TRACED GRAPH\n ===== __compiled_fn_1 =====\n " + graph_text, "V"
    )
    path = tmp_path / "issue.txt"
    path.write_text("\n".join(lines))
    run = load(path)
    assert [(problem.kind, problem.location) for problem in run.problems] == [
        ("recompile_limit", Location("/tmp/fg.py", 21, "many")),
        ("suppressed_error", Location("/tmp/fg.py", 18, "g")),
    ]
    assert run.problems[1].text.startswith("torch._dynamo.exc.BackendCompilerFailed: backend='b' raised:")
    assert [frame.outcome for frame in run.frames] == ["skipped", "skipped", "compiled"]
    assert run.frames[2].guards.count == 1 and run.frames[2].attempts == 2
    assert run.graphs[0].nodes == 9 and len(graph_nodes(read_payload(run.graphs[0].text))) == 9


def test_raised_break_of_fullgraph(tmp_path):
    path = tmp_path / "issue.txt"
    path.write_text(
        'Traceback (most recent call last):\n  File "/home/me/a.py", line 4, in <module>\n    f(x)\n'
        "torch._dynamo.exc.Unsupported: Failed to trace builtin operator\n  Explanation: e\n  Hint: h\n\n  Developer debug context: c\n\n"
        " For more details about this graph break, please visit: https://x.io/gb/gb0059.html\n\nfrom user code:\n"
        '   File "/home/me/a.py", line 3, in f\n    print("x")\n    ~~~~~^^^^^\n\nSet TORCHDYNAMO_VERBOSE=1 for more\n'
    )
    run = load(path)
    (event,) = run.breaks
    assert (event.gb_id, event.source, event.context) == ("GB0059", "exception", "c")
    assert event.torch_frame == Location("/home/me/a.py", 3, "f", 'print("x")')
    assert run.frames[0].outcome == "failed"


def test_breaks_of_old_torch(tmp_path):
    path = tmp_path / "old.txt"
    path.write_text(
        "[2023-05-05 10:00:00,123] torch._dynamo.symbolic_convert: [WARNING] Graph break: call_function print from user code at   "
        'File "/home/me/a.py", line 3, in f\n'
        "[2024-05-05 10:00:00,123] [0/0] torch._dynamo.symbolic_convert.__graph_breaks: [DEBUG] "
        "Graph break in user code at /home/me/a.py:7\n"
        "Reason: Unsupported: call_function BuiltinVariable(print) [ConstantVariable()] {}\nUser code traceback:\n"
        '  File "/home/me/a.py", line 7, in g\n    print(1)\n'
        "[2023-05-05 10:00:01,123] torch._dynamo.convert_frame: [WARNING] torch._dynamo hit config.cache_size_limit (64)\n"
        "   function: 'g' (/home/me/a.py:6)\n   reasons:  ['x']\n"
    )
    run = load(path)
    assert [event.torch_frame.line for event in run.breaks] == [3, 7]
    assert run.breaks[0].gb_type == "call_function print"
    assert run.breaks[1].gb_type == "Unsupported: call_function BuiltinVariable(print) [ConstantVariable()] {}"
    assert run.problems[0].kind == "recompile_limit" and run.problems[0].location.line == 6


@pytest.mark.parametrize(
    "head",
    ["", "[2022-10-18 14:15:12,345] torch._dynamo.optimizations.training: [WARNING] ", "torchdynamo.optimizations.training: [WARNING] ",
     "WARNING:torchdynamo.optimizations.training:", "[2022-10-18 14:15:12,345] torchdynamo.optimizations.training: [WARNING] "],
)  # fmt: skip
def test_warnings_of_2022(tmp_path, head):
    path = tmp_path / "old.log"
    texts = ["Unable to use Aot Autograd because of presence of mutation", "Aot Autograd is not safe to run, so falling back to eager"]
    path.write_text("epoch 1\n" + "".join(f"{head}{text}\n" for text in texts) + "done\n")
    run = load(path)
    assert [problem.kind for problem in run.legacy] == ["aot_rejected"] * 2
    assert [problem.text for problem in run.legacy] == texts
    assert run.frames == () and run.processes[0].records == 2


def test_ids_that_begin_again_at_another_line_are_other_frames(tmp_path):
    """`torch._dynamo.reset()` leaves no line in such a log."""
    head = "V1121 07:32:10.000000 42 torch/_dynamo/symbolic_convert.py:1] [0/{attempt}] [__graph_breaks] "
    rows = ("Graph break in user code at /home/me/a.py:{line}", "Graph Break Reason: why", "User code traceback:")
    rows = (*rows, '  File "/home/me/a.py", line {line}, in f', "    print(x)")
    block = "".join(f"{head}{row}\n" for row in rows)
    path = tmp_path / "log.txt"
    path.write_text(
        "".join(block.format(attempt=attempt, line=line) for attempt, line in (("0", 5), ("0", 5), ("0_1", 6), ("0", 9), ("1", 9)))
    )
    run = load(path)
    assert [(event.torch_frame.line, event.frame) for event in run.breaks] == [(5, "f0"), (5, "f0"), (6, "f0"), (9, "f1"), (9, "f2")]
    assert [(frame.key.epoch, frame.key.text) for frame in run.frames] == [(0, "0/0"), (1, "0/0"), (1, "0/1")]


def test_functions_of_one_name_are_told_apart_by_their_line(tmp_path):
    prefix = "W1121 07:32:10.000000 42 torch/_dynamo/convert_frame.py:1] "
    path = tmp_path / "log.txt"
    path.write_text(
        f"{prefix}[0/1] [__recompiles] Recompiling function f in /home/me/a.py:6\n"
        f"{prefix}[0/1] [__recompiles]     triggered by the following guard failure(s):\n"
        f"{prefix}[0/1] [__recompiles]     - 0/0: k == 2\n"
        f"{prefix}WON'T CONVERT f /home/me/a.py line 82 \n{prefix}due to: \n"
        f"{prefix}Traceback (most recent call last):\n{prefix}RuntimeError: nope\n"
    )
    run = load(path)
    assert {(frame.line, frame.outcome) for frame in run.frames} == {(6, "compiled"), (82, "skipped")}
    assert [problem.location.line for problem in run.problems] == [82]
