"""Facts out of single kinds of records, on logs built record by record."""

import json

import pytest

from dynadiag.model.location import Location
from dynadiag.trace import graph_details, graph_nodes, load, read_payload
from dynadiag.trace.metrics import limit_in, trimmed


def one(log, tmp_path):
    return load(log.write(tmp_path))


def test_break_record_is_taken_apart(log, tmp_path, break_text):
    log.start(0).artifact("dynamo_graph_break_reason", break_text, frame=0).metrics(0, attempt=1)
    run = one(log, tmp_path)
    (event,) = run.breaks
    assert event.gb_id == "GB0059"
    assert event.gb_type == "Failed to trace builtin operator"
    assert event.explanation == "Dynamo does not know how to trace builtin operator `print`"
    assert event.hints == ("Avoid calling builtin `print`.", "Add it to\n`torch._dynamo.config.reorderable_logging_functions`.")
    assert event.context == "builtin print [<class 'X'>] False"
    assert event.prefix.startswith("Encountered graph break when attempting to trace CALL")
    assert event.torch_frame == Location("/home/me/train.py", 5, "f", 'print("x")')
    assert [place.line for place in event.stack] == [9, 5]
    assert not event.skips_frame and event.source == "artifact" and event.cause is None
    (frame,) = run.frames
    assert (frame.name, frame.file, frame.line, frame.outcome, frame.attempts) == ("f", "/home/me/train.py", 3, "broke", 2)
    assert frame.stack == (Location("/home/me/train.py", 9, "<module>", "f(x)"),)


def test_skipped_frame_joins_both_halves(log, tmp_path):
    second = "*** While handling this graph break, another graph break occurred: ***"
    text = (
        "Graph break in user code at /home/me/train.py:5\n"
        "Graph Break Reason: Failed to handle graph break gracefully. Skipping the function and falling back to eager. "
        "Graph break encountered:\n\nCall to `torch._dynamo.graph_break()`\n  Explanation: User-inserted graph break.\n"
        f"  Hint: Remove it.\n\n  Developer debug context: x\n\n{second}\n\ngraph break in loop\n  Explanation: in a for/while loop.\n"
        "  Hint: h\n\n  Developer debug context: frame skipped\n\nUser code traceback:\n"
        '  File "/home/me/train.py", line 5, in f\n    torch._dynamo.graph_break()\n\nNoneType: None\n'
    )
    log.start(0).artifact("dynamo_graph_break_reason", text, frame=0)
    log.metrics(0, has_guarded_code=False, fail_type="Unsupported", fail_reason="Call to `torch._dynamo.graph_break()`")
    run = one(log, tmp_path)
    (event,) = run.breaks
    assert event.gb_type == "Call to `torch._dynamo.graph_break()`" and event.skips_frame
    assert event.skip_reason == "graph break in loop: in a for/while loop."
    assert run.frames[0].outcome == "skipped"


def test_second_half_comes_from_the_error_record(log, tmp_path, break_text):
    error = (
        'Traceback (most recent call last):\n  File "/site/torch/_dynamo/x.py", line 1, in g\n    raise\n'
        "torch._dynamo.exc.Unsupported: Failed to trace builtin operator\n  Explanation: one\n\n"
        "*** While handling this graph break, another graph break occurred: ***\n\nbreak in try block\n  Explanation: two\n\n"
        'from user code:\n   File "/home/me/train.py", line 5, in f\n    print("x")\n'
    )
    log.start(0).artifact("dynamo_graph_break_reason", break_text, frame=0).artifact("dynamo_error", error, frame=0)
    log.metrics(0, has_guarded_code=False, fail_type="Unsupported", fail_reason="Failed to trace builtin operator")
    run = one(log, tmp_path)
    assert run.breaks[0].skip_reason == "break in try block: two"
    assert run.breaks[0].skips_frame
    assert run.frames[0].outcome == "skipped" and run.frames[0].error.startswith("Unsupported: Failed to trace")


def test_fullgraph_break_comes_from_metrics(log, tmp_path):
    reason = "Failed to trace builtin operator\n  Explanation: e\n  Hint: h\n\n  Developer debug context: c\n\n"
    reason += " For more details about this graph break, please visit: https://x.io/gb/gb0059.html"
    log.start(0).metrics(
        0,
        has_guarded_code=False,
        fail_type="Unsupported",
        fail_reason=reason,
        fail_user_frame_filename="/home/me/train.py",
        fail_user_frame_lineno=5,
    )
    run = one(log, tmp_path)
    (event,) = run.breaks
    assert (event.gb_id, event.source, event.torch_frame.line) == ("GB0059", "metrics", 5)
    assert run.frames[0].outcome == "failed" and not run.problems


def test_warning_and_break_of_one_event_are_one(log, tmp_path, break_text):
    warning = (
        "WON'T CONVERT f /home/me/train.py line 3\n========== TorchDynamo Stack Trace ==========\nTraceback (most recent call last):\n"
        '  File "/x.py", line 1, in g\n    raise\ntorch._subclasses.fake_tensor.DataDependentOutputException: aten.item\n'
        "========== The above exception occurred while processing the following code ==========\n\n"
        '  File "/home/me/train.py", line 5, in f\n    y.item()\n\n==========\n'
    )
    log.start(0).artifact("dynamo_graph_break_reason", warning, frame=0).artifact("dynamo_graph_break_reason", break_text, frame=0)
    log.metrics(0)
    run = one(log, tmp_path)
    (event,) = run.breaks
    assert event.gb_id == "GB0059" and event.cause.startswith("torch._subclasses.fake_tensor.DataDependentOutputException: aten.item")
    alone = load(
        type(log)().intern("a").start(0).artifact("dynamo_graph_break_reason", warning, frame=0).metrics(0).write(tmp_path, "b.log")
    )
    assert alone.breaks[0].torch_frame == Location("/home/me/train.py", 5, "f", "y.item()")


def test_recompile_reasons_one_and_many(log, tmp_path):
    log.start(0).metrics(0)
    log.artifact("recompile_reasons", "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 8", frame=0, again=1).start(
        0, 1
    ).metrics(0, 1)
    many = "[\n" + ",\n".join(map(json.dumps, ["0/1: n == 2\nUser stack trace:\n  File", "0/0: n == 1"])) + "\n]"
    log.artifact("recompile_reasons", many, frame=0, again=2).start(0, 2).metrics(0, 2)
    run = one(log, tmp_path)
    assert [event.reasons for event in run.recompiles] == [
        ("0/0: tensor 'x' size mismatch at index 0. expected 4, actual 8",),
        ("0/1: n == 2\nUser stack trace:\n  File", "0/0: n == 1"),
    ]
    assert [event.frame for event in run.recompiles] == ["f1", "f2"]
    assert run.recompiles[0].stack == (Location("/home/me/train.py", 9, "<module>", "f(x)"),)


def test_recompile_limit_is_a_skip_and_a_problem(log, tmp_path):
    log.start(0).metrics(0)
    log.artifact("recompile_reasons", "0/0: n == 2", frame=0, again=1)
    text = "Dynamo recompile limit exceeded\n  Explanation: too many"
    log.metrics(0, 1, co_name=None, has_guarded_code=None, fail_type="Unsupported", fail_reason=text)
    run = one(log, tmp_path)
    assert [frame.outcome for frame in run.frames] == ["compiled", "skipped"]
    assert run.frames[1].name == "f"
    assert [(problem.kind, problem.frame) for problem in run.problems] == [("recompile_limit", "f1")]
    assert run.breaks == ()


def test_compile_id_that_starts_again_is_a_new_epoch(log, tmp_path):
    log.start(0).metrics(0).start(1, name="g").metrics(1).start(0, name="h").metrics(0)
    run = one(log, tmp_path)
    assert [(frame.key.text, frame.key.epoch, frame.name) for frame in run.frames] == [("0/0", 0, "f"), ("1/0", 0, "g"), ("0/0", 1, "h")]


def test_late_backward_belongs_to_the_frame_before_the_reset(log, tmp_path, graph_text):
    log.start(2).metrics(2).artifact("dynadiag_reset", {"epoch": 1}).start(0).metrics(0)
    log.record("aot_backward_graph", {}, graph_text, frame=2).metrics(
        2, kind="bwd_compilation_metrics", backward_cumulative_compile_time_us=5
    )
    run = one(log, tmp_path)
    assert len(run.frames) == 2 and run.graphs[0].frame == "f0"
    assert run.frames[0].metrics.backward_s == pytest.approx(5e-6)


def test_repeated_records_count_once(log, tmp_path, break_text):
    log.start(0).artifact("dynamo_graph_break_reason", break_text, frame=0)
    log.parts.append(log.parts[-1])
    log.parts.append(log.parts[-3])
    log.metrics(0, attempt=1)
    run = one(log, tmp_path)
    assert len(run.breaks) == 1 and len(run.frames) == 1
    assert run.processes[0].skipped == {"repeated record": 2}


def test_graph_counts_text_and_nodes(log, tmp_path, graph_text):
    log.start(0).record("dynamo_output_graph", {"sizes": {}}, graph_text, frame=0).metrics(0, graph_node_count=9)
    run = one(log, tmp_path)
    (graph,) = run.graphs
    assert graph.nodes == 9
    assert graph.ops == {
        "relu": 1,
        "operator.mul": 1,
        "torch.ops.higher_order.wrap": 1,
        "operator.getitem": 1,
        "operator.iadd": 1,
    }
    assert read_payload(graph.text) == graph_text
    nodes = graph_nodes(read_payload(graph.text))
    assert len(nodes) == graph.nodes
    assert [node.op for node in nodes[:2]] == ["placeholder", "placeholder"]
    assert nodes[2].location == Location("/home/me/train.py", 4, "f", "y = x.relu() * 2")
    assert [(node.name, node.op, node.target) for node in nodes[2:5]] == [
        ("relu", "call_method", "relu"),
        ("mul", "call_function", "operator.mul"),
        ("body", "get_attr", "body_0"),
    ]
    assert nodes[0].annotation == "f32[4, 16][16, 1]cpu" and nodes[-1].args == ("iadd",)


def test_joint_graph_takes_inputs_from_the_body(log, tmp_path):
    text = (
        "class inner_f(torch.nn.Module):\n    def forward(\n        self,\n        primals,\n        tangents,\n    ):\n"
        '        primals_1: "f32[4][1]cpu"  # PlainAOTInput(idx=0)\n        tangents_1: "f32[][]cpu"  # TangentAOTInput(x)\n'
        "        primals_1, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)\n"
        '        mul: "f32[4][1]cpu" = torch.ops.aten.mul.Tensor(primals_1, tangents_1);  primals_1 = None\n'
        "        return pytree.tree_unflatten([\n            mul,  # PlainAOTOutput(idx=0)\n            None,  # None\n"
        "        ], self._out_spec)\n"
    )
    log.start(0).record("aot_joint_graph", {}, text, frame=0).metrics(0)
    run = one(log, tmp_path)
    assert run.graphs[0].nodes == 4 and run.graphs[0].ops == {"torch.ops.aten.mul.Tensor": 1}
    nodes = graph_nodes(text)
    assert [node.name for node in nodes] == ["primals_1", "tangents_1", "mul", "output"]
    assert nodes[0].annotation == "f32[4][1]cpu" and nodes[-1].args == ("mul", "None")


def test_phases_have_self_time_and_the_frame(log, tmp_path):
    def event(kind, name, at):
        payload = {"name": name, "ts": at, "args": {"compile_id": "0/0"}, "ph": kind, "cat": "dynamo_timed", "tid": 0, "pid": 0}
        log.record("chromium_event", {}, payload, frame=0)

    event("B", "entire_frame_compile", 100.0)
    log.start(0)
    event("B", "backend_compile", 200.5)
    event("i", "cache", 210.0)
    event("E", "backend_compile", 300.5)
    event("E", "entire_frame_compile", 1100.0)
    event("E", "never begun", 1200.0)
    log.metrics(0)
    run = one(log, tmp_path)
    assert [(phase.frame, phase.name, phase.count) for phase in run.phases] == [
        ("f0", "backend_compile", 1),
        ("f0", "entire_frame_compile", 1),
    ]
    assert run.phases[1].total_s == pytest.approx(0.001) and run.phases[1].self_s == pytest.approx(0.0009)


def test_guards_are_summed_up(log, tmp_path):
    text = (
        "\nTREE_GUARD_MANAGER:\n+- RootGuardManager\n"
        "| +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None                           # _dynamo/output_graph.py:1 in init\n"
        "| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x'), type=<class 'torch.Tensor'>\n"
        "| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, size=[4])  # return x * n  # train.py:5 in f\n"
        "| | +- TENSOR_MATCH: check_tensor(L['x'].deep.er, Tensor, size=[4])  # return x * n  # train.py:6 in f\n"
        "Guard latency = 12.50 us"
    )
    log.start(0).record("dynamo_cpp_guards_str", {}, text, frame=0).metrics(0)
    (frame,) = one(log, tmp_path).frames
    assert frame.guards.count == 3 and frame.guards.by_kind == {"DEFAULT_DEVICE": 1, "TENSOR_MATCH": 2}
    sources = {guard.source: guard.origin for guard in frame.guards.examples}
    assert sources["L['x'].deep.er"] == "return x * n  # train.py:6 in f"
    assert frame.metrics.guard_latency_us == 12.5


def test_caches(log, tmp_path):
    log.start(0)
    log.artifact("fx_graph_cache_miss", {"key": "k"}, frame=0).artifact(
        "aotautograd_cache_bypass", '{"cache_bypass_reason": "no \\"way\\""}', frame=0
    )
    run = one(log.metrics(0), tmp_path)
    assert [(event.cache, event.result, event.why, event.frame) for event in run.caches] == [
        ("fx_graph", "miss", None, "f0"),
        ("aotautograd", "bypass", 'no "way"', "f0"),
    ]


def test_suppressed_and_raised_backend_errors(log, tmp_path):
    failed = {"has_guarded_code": False, "fail_type": "BackendCompilerFailed", "fail_reason": "backend='b' raised:\nRuntimeError: no"}
    log.start(0).metrics(0, config_suppress_errors=True, **failed).start(1).metrics(1, config_suppress_errors=False, **failed)
    run = one(log, tmp_path)
    assert [frame.outcome for frame in run.frames] == ["skipped", "failed"]
    assert [problem.kind for problem in run.problems] == ["suppressed_error", "backend_error"]
    assert run.breaks == ()


def test_cut_log_says_so(log, tmp_path):
    (frame,) = one(log.start(0), tmp_path).frames
    assert frame.outcome == "failed" and frame.error == "the log ends before this frame was finished"


def test_own_artifacts(new_log, tmp_path, graph_text):
    log = new_log()
    log.artifact(
        "dynadiag_environment",
        {
            "pid": 7,
            "ppid": 6,
            "rank": 3,
            "torch": "2.15.0",
            "python": "3.12.1",
            "argv": ["a.py"],
            "env": {"A": "1", "B": 2},
            "site_prefixes": ["/usr/lib"],
            "device": None,
        },
    )
    log.artifact("dynadiag_config", {"dynamo": {"verbose": True}, "options": {"dynamo": ["verbose", "disable"]}, "grad_mode": False})
    log.artifact("dynadiag_registry", {"gb_id": "GB0001", "gb_type": "t", "explanation": "e", "hints": ["h", 3]})
    log.artifact(
        "dynadiag_compile_call",
        {
            "target": "f",
            "definition": {"file": "a.py", "line": 2},
            "backend": "eager",
            "fullgraph": True,
            "disable": False,
            "options": {"x": 1},
            "stack": [
                {"file": "a.py", "line": 3, "function": "m", "code": "@torch.compile(fullgraph=True)"},
                {"file": "torch/__init__.py", "line": 9, "function": "compile.<locals>.fn", "code": "return compile("},
            ],
        },
    )
    log.artifact("dynadiag_library", {"package": "kornia", "version": "0.9.0"})
    log.artifact("dynadiag_library", {"package": "timm", "version": 3})
    log.artifact("dynadiag_hooks", {"graphs": "ok", "n": 1})
    log.start(0).record("dynamo_output_graph", {}, graph_text, frame=0)
    details = {"graph": 0, "inputs": [{"name": "L_x_"}], "nodes": [["relu", None, 0]], "strings": ["File"]}
    log.artifact("dynadiag_graph", details, frame=0)
    log.artifact("dynadiag_problem", {"kind": "no_graph", "text": "nothing", "stack": [{"file": "a.py", "line": 1}]}, frame=0)
    log.artifact("dynadiag_problem", {"kind": "recorder", "text": "payload: AttributeError: no 'as_coeff_Mul'"})
    log.artifact(
        "dynadiag_cost",
        {"how": "profiler", "regions": [{"frame_id": 0, "frame_compile_id": 0, "region": "r", "calls": 4, "region_us": 10.5}]},
    )
    log.metrics(0).artifact("dynadiag_exit", {"counters": {"frames": {"total": 1}, "odd": 3}})
    run = one(log, tmp_path)
    # torch could not print a graph of its own (2.11), and the report said that the recorder had failed
    assert any(note.startswith("torch could not make the text of one of its records") for note in run.notes)
    assert [problem.kind for problem in run.problems] == ["no_graph"]
    (process,) = run.processes
    assert (process.pid, process.parent_pid, process.rank, process.torch, process.argv) == (7, 6, 3, "2.15.0", ("a.py",))
    assert process.environment == {"A": "1"} and process.finished and process.counters == {"frames": {"total": 1}, "odd": {}}
    assert process.config["dynamo"] == {"verbose": True} and process.option_names == {"dynamo": frozenset({"verbose", "disable"})}
    assert process.registry["GB0001"].hints == ("h",) and process.hooks == {"graphs": "ok"}
    assert run.site_prefixes == ("/usr/lib",)
    assert run.compile_calls[0].options == {"fullgraph": True, "x": 1} and run.compile_calls[0].location.line == 3
    assert run.compile_calls[0].definition == Location("a.py", 2) and run.compile_calls[0].epoch == 0
    assert graph_details(run.graphs[0].details) == details
    assert run.problems[0].kind == "no_graph" and run.problems[0].frame == "f0"
    assert run.costs[0].frame == "f0" and run.costs[0].region_us == 10.5 and run.costs[0].lookup_us is None
    assert process.libraries == {"kornia": "0.9.0"}
    assert process.skipped == {"library is mistyped": 1} and process.unknown_artifacts == {}


def test_unknown_records_are_counted_by_name(log, tmp_path):
    run = one(log.artifact("brand_new", {"a": 1}).record("describe_storage", {"id": 0}).start(0).metrics(0), tmp_path)
    assert run.processes[0].unknown_artifacts == {"brand_new": 1, "describe_storage": 1}


def test_processes_of_one_log_are_told_apart(new_log, tmp_path):
    first, second = new_log(11).start(0).metrics(0), new_log(12).start(0).metrics(0)
    second.parts = second.parts[1:]  # a forked child does not write the strings again that its parent wrote
    path = tmp_path / "dedicated_log_torch_trace_x.log"
    path.write_bytes(first.data + second.data)
    run = load(path)
    assert [process.pid for process in run.processes] == [11, 12]
    assert [frame.file for frame in run.frames] == ["/home/me/train.py"] * 2


def test_checksum_mismatch_is_a_note(log, tmp_path, graph_text):
    log.start(0).record("dynamo_output_graph", {}, graph_text, frame=0).metrics(0)
    path = log.write(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"l_x_.relu()", b"l_x_.tanh()"))
    run = load(path)
    assert run.graphs[0].ops["tanh"] == 1
    assert run.notes == (
        "1 payloads in dedicated_log_torch_trace_x.log do not match their checksums (edited or damaged); used as they are",
    )


def test_windows_line_ends(log, tmp_path, graph_text, break_text):
    log.start(0).artifact("dynamo_graph_break_reason", break_text, frame=0).record("dynamo_output_graph", {}, graph_text, frame=0).metrics(
        0
    )
    path = log.write(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    run = load(path)
    assert run.graphs[0].nodes == 9 and len(graph_nodes(read_payload(run.graphs[0].text))) == 9
    assert run.breaks[0].torch_frame.code == 'print("x")' and run.notes == ()


def test_long_configurations_are_cut_out_of_metrics_without_harm():
    values = {
        "co_name": "f",
        "exception_stack_trace": ['a\n"], "b": "}"', "c"],
        "dynamo_config": json.dumps({"recompile_limit": 5, "odd": '}", "x": "'}),
        "inductor_config": json.dumps({"a": {"b": '"], "'}}),
        "functorch_config": json.dumps({"a": 1}),
        "guard_count": 3,
    }
    for order in (values, dict(reversed(values.items()))):
        line = json.dumps({"compilation_metrics": order, "frame_id": 0}).encode()
        left = json.loads(trimmed(line))["compilation_metrics"]
        assert left["co_name"] == "f" and left["guard_count"] == 3 and set(left) == set(values)
        assert limit_in(line) == 5
    assert trimmed(b'{"dynamo_config": "{') == b'{"dynamo_config": "{' and limit_in(b"{}") is None


def test_watched_guards_symbols_and_limit(log, tmp_path):
    text = "\n+- RootGuardManager\n| +- EQUALS_MATCH: L['k'] == 2  # a  # b:1 in f\n| +- TYPE_MATCH: check(L['m'].h)  # a  # b:1 in f"
    log.start(0).metrics(0)
    log.artifact("recompile_reasons", "0/0: k == 1    # return x  # a.py:1 in f", frame=0, again=1).start(0, 1)
    symbol = {"symbol": "s0", "val": "8", "vr": "[2, int_oo]", "source": "L['x'].size()[0]"}
    log.record("create_symbol", symbol, frame=0, again=1).record("create_symbol", {**symbol, "val": "9"}, frame=0, again=1, attempt=1)
    log.record("symbolic_shape_specialization", {"symbol": "s0"}, frame=0, again=1, attempt=1)
    log.record("dynamo_cpp_guards_str", {}, text, frame=0, again=1)
    log.metrics(0, 1, attempt=1, dynamo_config=json.dumps({"recompile_limit": 8, "z": 1}), end="")
    run = one(log, tmp_path)
    assert [guard.source for guard in run.frames[1].guards.watched] == ["L['k']"]
    assert [(found.frame, found.value, found.specialized) for found in run.symbols] == [("f1", "9", True)]
    assert run.frames[1].metrics.recompile_limit == 8


def test_a_frame_whose_back_end_had_not_come_back_is_not_compiled(log, tmp_path, graph_text):
    """The process was killed, or still compiles: there is a graph, and neither guards nor metrics."""
    begun = log.start(1).record("dynamo_output_graph", {}, graph_text, frame=1)
    alone = load(begun.write(tmp_path)).frames
    assert [frame.outcome for frame in alone] == ["compiled"]
    begun.start(2).metrics(2)
    cut, done = load(begun.write(tmp_path)).frames
    assert (cut.outcome, cut.error, done.outcome) == ("failed", "the log ends before this frame was finished", "compiled")


@pytest.mark.parametrize(
    ("hooks", "notes"),
    [
        ({"cudagraph_partition": "AttributeError: x", "cudagraph_rerecord": "ok"}, ["parts of graphs that Inductor keeps out"]),
        ({"cudagraph_rerecord": "AttributeError: x", "cudagraph_skip": "ok"}, ["recordings of CUDA graphs"]),
        ({"cudagraph_skip": "ok"}, []),  # torch 2.6 has no partitions, so that nothing is missing
    ],
)
def test_a_hook_that_could_not_be_put_in_is_a_note(log, tmp_path, hooks, notes):
    run = one(log.artifact("dynadiag_hooks", hooks), tmp_path)
    assert len(run.notes) == len(notes) and all(word in note for word, note in zip(notes, run.notes, strict=True))
