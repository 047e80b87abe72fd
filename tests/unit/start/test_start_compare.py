"""Logs of two starts compared: the cause of each miss in terms of the program, and the comparison in each format."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from typer.main import get_command

from dynadiag import report
from dynadiag.diff import show as diff_show
from dynadiag.diff.caches import cache_changes
from dynadiag.diff.compare import compare as diff
from dynadiag.errors import NothingFoundError
from dynadiag.render import markdown
from dynadiag.render.html import result_page
from dynadiag.render.markdown_text import document
from dynadiag.render.page import text_of
from dynadiag.start import show
from dynadiag.start.compare import _apart_from_sizes, compare
from dynadiag.start.result import Cause
from dynadiag.start.setting_lines import SettingLines, Source
from dynadiag.trace import load
from dynadiag_cli.main import app
from tests.unit.trace.conftest import LogBuilder

ROOT = Path(__file__).parents[3]
HOSTILE = "a\x1b[31m\u202e</script><b>|`{{ 7 * 7 }}"
SCRIPT = "import torch\nimport torch._inductor.config as inductor\ntorch.set_num_threads(2)\ninductor.cpp.min_chunk_size = 512\n"
PARTS = {
    "gm": "graph",
    "example_inputs[0]": "TensorMetadata([8])",
    "cpp_runtime_thread_count": "1",
    "inductor_config[cpp.min_chunk_size]": "512",
}
TENSOR = {
    "id": 0,
    "ndim": 1,
    "dtype": "torch.float32",
    "device": "device(type='cpu')",
    "size": [8],
    "is_leaf": True,
    "stride": [1],
    "storage": 0,
    "view_func": "f",
    "describer_id": 0,
}


def graph(number=2.5, call="cos"):
    return f"""class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8][1]cpu"):
        l_x_ = L_x_

        # File: /home/me/train.py:4 in f, code: return (x * k).{call}()
        mul: "f32[8][1]cpu" = l_x_ * {number};  l_x_ = None
        {call}: "f32[8][1]cpu" = mul.{call}();  mul = None
        return ({call},)
"""


def a_start(
    folder, *, code=None, size=8, key="k1", result="miss", folder_of_caches="/caches", environment=None, parts=None, finished=True, **more
):
    """A log of one compilation with its look-ups in both caches."""
    folder.mkdir()
    log = LogBuilder().intern("/home/me/train.py")
    variables = {"TORCHINDUCTOR_CACHE_DIR": folder_of_caches, **(environment or {})}
    log.artifact("dynadiag_environment", {"format": 1, "pid": 4242, "torch": "2.15.0", "argv": ["train.py"], "env": variables})
    log.start(0)
    where = {"frame": 0}
    log.record("describe_tensor", {**TENSOR, "size": [size]}, **where)
    log.record("describe_source", {"describer_id": 0, "id": 0, "source": "L['x']"}, **where)
    log.record("dynamo_output_graph", {"sizes": {}}, code or graph(), **where)
    listed = [
        f"[{hashlib.md5(value.encode()).hexdigest()}] {name}: {value}"
        for name, value in {**PARTS, "example_inputs[0]": f"TensorMetadata([{size}])", **(parts or {})}.items()
    ]
    for cache in ("aotautograd", "fx_graph") if result else ():
        record = {"key": f"{cache[:1]}{key}", "cache_state": result, "components": listed, "time_taken_ns": 2_000_000_000, **more}
        log.artifact(f"{cache}_cache_{result}", json.dumps(record), **where)
    if finished:
        log.metrics(0, entire_frame_compile_time_s=3.0)
    log.artifact("dynadiag_exit", {"counters": {}})
    log.write(folder)
    return report.build(load(folder))


@pytest.fixture
def two(tmp_path):
    """The first start, and a second one of other values, compared."""

    def start(old=None, same=None, **new):
        sides = a_start(tmp_path / "old", **(old or {})), a_start(tmp_path / "new", **{"key": "k2", **new})
        options = {"same_program": same is not None, "sources": (Source("train.py", SCRIPT),)}
        return compare(*sides, old_path="old", new_path="new", **options)

    return start


def told(result):
    return [(cause.kind, cause.said, cause.place and cause.place.line) for cause, _ in result.causes()]


def test_a_hit_is_warm(two):
    result = two(key="k1", result="hit")
    assert (told(result), result.missed, result.exit_status, result.notes) == ([], 0, 0, ())
    assert show.headline(result).word == "Warm"


def test_a_number_in_the_code_is_named_at_its_line(two):
    result = two(code=graph(2.75), parts={"gm": "other"})
    assert told(result) == [("constant", "a number in the code: 2.5 -> 2.75", 4)]
    assert any("Triton" in note and "not seen here" in note for note in result.notes)
    assert (result.missed, result.exit_status) == (1, 1)


def test_a_number_that_the_line_computes_of_another_is_no_second_cause(two):
    def momentum(value):
        """As Dynamo prints what it folds."""
        code = graph(value).replace("return (x * k).cos()", "v = v * MOMENTUM + x * (1 - MOMENTUM)")
        more = f"""        cos: "f32[8][1]cpu" = mul * {1 - value};  mul = None\n"""
        return code.replace("""        cos: "f32[8][1]cpu" = mul.cos();  mul = None\n""", more)

    result = two(code=momentum(0.95), old={"code": momentum(0.9)}, parts={"gm": "other"})
    assert told(result) == [("constant", "a number in the code: 0.9 -> 0.95", 4)]


def test_two_numbers_that_no_expression_joins_are_two_causes(two):
    def numbers(first, second):
        return graph(first).replace("mul.cos()", f"mul * {second}")

    result = two(code=numbers(0.95, 0.5), old={"code": numbers(0.9, 0.25)}, parts={"gm": "other"})
    assert [said for _, said, _ in told(result)] == ["a number in the code: 0.9 -> 0.95", "a number in the code: 0.25 -> 0.5"]


@pytest.mark.parametrize(
    ("component", "old", "new", "said"),
    [
        (
            "cuda_matmul_settings",
            "('ieee', True, True)",
            "('tf32', True, True)",
            "float32 matmul precision: 'highest' (ieee) -> 'high' or 'medium' (tf32)",
        ),
        (
            "cuda_matmul_settings",
            "('none', True, True)",
            "('none', True, False)",
            "reduced precision of bfloat16 matmul: True -> False",
        ),
        (
            "deterministic_algorithms_settings",
            "(False, False, True)",
            "(True, False, True)",
            "deterministic algorithms: False -> True",
        ),
        ("autocast_state[cpu]", "(False, torch.bfloat16)", "(True, torch.bfloat16)", "autocast on cpu: False -> True"),
    ],
)
def test_of_a_setting_with_several_values_only_what_differs_is_shown(component, old, new, said, two):
    assert [cause for _, cause, _ in told(two(parts={component: new}, old={"parts": {component: old}}))] == [said]


def test_an_operator_is_named_at_its_line(two):
    assert told(two(code=graph(call="sin"), parts={"gm": "other"})) == [("operators", "the traced operators: cos -> sin", 4)]


def test_operators_in_another_order_are_one_cause(two):
    swapped = graph().replace(
        """        mul: "f32[8][1]cpu" = l_x_ * 2.5;  l_x_ = None
        cos: "f32[8][1]cpu" = mul.cos();  mul = None
""",
        """        mul: "f32[8][1]cpu" = l_x_.cos();  l_x_ = None
        cos: "f32[8][1]cpu" = mul * 2.5;  mul = None
""",
    )
    assert told(two(code=swapped, parts={"gm": "other"})) == [
        ("operators", "the order of the traced operators: operator.mul, cos -> cos, operator.mul", 4)
    ]


def test_an_input_is_named_as_the_program_does_and_its_graph_is_not_another_cause(two):
    assert told(two(size=16, parts={"gm": "other"})) == [("input", "shape of input `x`: [8] -> [16]", None)]


def test_a_setting_has_the_line_that_sets_it(two):
    result = two(parts={"cpp_runtime_thread_count": "2"})
    assert told(result) == [("setting", "number of threads: 1 -> 2", 3)]


def test_an_option_has_its_line(two):
    result = two(parts={"inductor_config[cpp.min_chunk_size]": "1024"})
    assert told(result) == [("option", "option torch._inductor.config.cpp.min_chunk_size: 512 -> 1024", 4)]


def test_an_option_without_a_line_has_the_variable_that_sets_it(two):
    result = two(
        parts={"inductor_config[freezing]": "True"},
        environment={"TORCHINDUCTOR_FREEZING": "1"},
        old={"parts": {"inductor_config[freezing]": "False"}},
    )
    ((kind, said, _),) = told(result)
    assert kind == "option" and "TORCHINDUCTOR_FREEZING (not set -> 1)" in said


def test_what_follows_from_deterministic_mode_is_no_other_cause(two):
    changed = {"deterministic_algorithms_settings": "(True, False)", "inductor_config[deterministic]": "True"}
    result = two(
        parts=changed, old={"parts": {"deterministic_algorithms_settings": "(False, False)", "inductor_config[deterministic]": "False"}}
    )
    assert [kind for kind, _, _ in told(result)] == ["setting"]


def test_the_same_key_in_another_folder_is_the_folder(two):
    result = two(key="k1", folder_of_caches="/elsewhere")
    assert told(result) == [("cache_folder", "the keys are the same, but the cache folder is another one: /caches -> /elsewhere", None)]


def test_the_same_key_in_the_same_folder_is_a_lost_entry(two):
    assert [kind for kind, _, _ in told(two(key="k1"))] == ["entry_gone"]


def test_a_bypass_has_torchs_reason_once(two):
    result = two(result="bypass", cache_bypass_reason='Unsupported post grad custom pass "x"')
    ((kind, said, _),) = told(result)
    assert kind == "custom_pass" and "uuid" in said and 'Unsupported post grad custom pass "x"' in said


def test_a_bypass_is_not_said_to_be_a_missing_entry(two):
    result = two(result="bypass", cache_bypass_reason="x")
    assert show.headline(result).what == "1 of 1 compilation bypassed the caches in the second start"


def test_each_way_of_being_cold_is_counted(two):
    result = two(result="bypass", cache_bypass_reason="x")
    (bypassed,) = result.compilations
    missed = replace(bypassed, answers=(replace(bypassed.answers[0], result="miss"), bypassed.answers[1]))
    both = replace(result, compilations=(bypassed, missed), missed=2)
    assert show.headline(both).what == (
        "2 of 2 compilations did not come from the caches in the second start: 1 found no entry, 1 bypassed the caches"
    )


def test_seconds_have_no_more_digits_than_their_clock(two):
    result = replace(two(key="k1", result="hit"), steps={"whole run": (12.0, 4.25)})
    assert " 12 s " in text_of(show.document_of(result)) and " 4.25 s" in text_of(show.document_of(result))


def test_caches_that_were_not_asked_are_off_by_the_variable(two):
    result = two(result=None, environment={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"})
    assert told(result) == [("caches_off", "no cache was asked: TORCHINDUCTOR_FORCE_DISABLE_CACHES=1", None)]


def test_inputs_of_another_order_are_told_though_the_graphs_do_the_same(two):
    code = graph().replace("def forward(self, L_x_", 'def forward(self, L_y_: "f32[8]", L_x_')
    other = graph().replace('L_x_: "f32[8][1]cpu"):', 'L_x_: "f32[8][1]cpu", L_y_: "f32[8]"):')
    ((kind, said, _),) = told(two(code=other, old={"code": code}, parts={"aot_config": "other"}))
    assert (kind, said.partition(":")[0]) == ("operators", "the order of the graph's inputs")


def test_a_first_start_that_was_ended_while_it_compiled_is_told(two):
    assert told(two(key="k1", old={"finished": False})) == [("new_function", "the first start did not finish compiling this", None)]


def test_an_entry_for_other_sizes_is_told(two):
    assert [kind for kind, _, _ in told(two(key="k1", cache_status_detailed="guard_miss"))] == ["other_sizes"]


def test_what_nothing_explains_is_shown_as_torch_names_it(two):
    assert told(two(parts={"a_new_component": HOSTILE})) == [
        ("unknown", f"torch's key component `a_new_component`: none -> {HOSTILE}", None)
    ]


def test_one_command_that_traces_another_number_each_time_differs_by_itself(two):
    ((kind, said, line),) = told(two(same=True, code=graph(2.75), parts={"gm": "other"}))
    assert (kind, line) == ("per_process", 4) and said.startswith("a number in the code, which differs in each process")


def test_diff_lists_the_components_that_differ_by_name(tmp_path):
    old = a_start(tmp_path / "old")
    new = a_start(tmp_path / "new", key="k2", parts={"cpp_runtime_thread_count": "2"})
    (change,) = cache_changes(old.run, new.run)
    assert [(part.name, part.old, part.new) for part in change.parts] == [("cpp_runtime_thread_count", "1", "2")]
    assert (change.function, change.new) == ("f (me/train.py)", "aotautograd miss, fx_graph miss")
    assert list(cache_changes(old.run, old.run)) == []
    result = diff(old, new, old_path="old", new_path="new")
    assert result.exit_status == 0 and "cpp_runtime_thread_count: 1 -> 2" in document(diff_show.document_of(result))


def test_explain_names_torchs_reason_for_a_bypass(tmp_path):
    of = a_start(tmp_path / "old", result="bypass", cache_bypass_reason="Unsupported post grad custom pass")
    assert "torch's reason: Unsupported post grad custom pass" in markdown.render(of)


def test_logs_of_different_programs_are_refused(tmp_path):
    old = a_start(tmp_path / "old")
    log = LogBuilder().intern("/home/me/other.py").start(0, name="g").metrics(0, co_name="g", co_filename="/home/me/other.py")
    (tmp_path / "new").mkdir()
    log.write(tmp_path / "new")
    with pytest.raises(NothingFoundError, match="different programs"):
        compare(old, report.build(load(tmp_path / "new")), old_path="old", new_path="new")


def test_two_recordings_stay_in_their_order_whatever_follows_them(tmp_path):
    for name in ("old", "new"):
        a_start(tmp_path / name)
    named = [str(tmp_path / "old"), str(tmp_path / "new")]
    for words in (named, [*named, "--format", "json"], ["--format", "json", *named]):
        assert get_command(app).commands["start"].make_context("start", list(words)).params["target"] == named


def test_texts_from_a_log_stay_texts_and_json_follows_its_schema(two):
    result = two(parts={"a_new_component": HOSTILE})
    schema = json.loads((ROOT / "docs/start.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(show.as_json(result)))
    shown = show.document_of(result, "dynadiag start old new")
    text, page = text_of(shown), result_page.render(shown)
    assert "\x1b" not in text + document(shown) + page and "</script><b>" not in page
    assert "a_new_component" in text and "3.00 s" in text


def test_the_line_that_sets_an_option_by_its_name_is_found():
    text = "import torch\nsetattr(x, other, 1)\nsetattr(torch._inductor.config, 'max_fusion_size', 11)\n"
    assert SettingLines((Source("train.py", text),)).line_of_option("max_fusion_size").line == 3


def test_symbols_of_a_dynamic_size_are_no_operators():
    inputs = Cause(kind="operators", what="the graph has other inputs (l_x_)")
    operators = Cause(kind="operators", what="the traced operators", old="cos", new="sin")
    dynamic = Cause(kind="dynamic", what="size 0 of `x` is dynamic now")
    assert _apart_from_sizes([inputs, operators], [dynamic]) == [operators]
    assert _apart_from_sizes([inputs, operators], []) == [inputs, operators]


def test_a_compilation_for_a_size_that_the_first_start_did_not_see_is_named_by_that_size(tmp_path):
    """A second size of a function that the first start compiled for one."""

    def run(folder, *, second):
        folder.mkdir()
        log = LogBuilder().intern("/home/me/train.py")
        log.artifact(
            "dynadiag_environment",
            {"format": 1, "pid": 1, "torch": "2.15.0", "argv": ["train.py"], "env": {"TORCHINDUCTOR_CACHE_DIR": "/c"}},
        )
        for number, size in enumerate((8, 12) if second else (8,)):
            where = {"frame": 0, "again": number}
            log.start(0, number)
            log.record("describe_tensor", {**TENSOR, "id": number, "size": [size]}, **where)
            log.record("describe_source", {"describer_id": 0, "id": number, "source": "L['x']"}, **where)
            if number:
                log.record("create_symbol", {"symbol": "s0", "val": str(size), "source": "L['x'].size()[0]", "vr": "[2, int_oo]"}, **where)
            log.record("dynamo_output_graph", {"sizes": {}}, graph(), **where)
            log.artifact("fx_graph_cache_miss", json.dumps({"key": f"k{number}", "cache_state": "miss", "components": []}), **where)
            log.metrics(0, number, entire_frame_compile_time_s=3.0)
        log.artifact("dynadiag_exit", {"counters": {}})
        log.write(folder)
        return report.build(load(folder))

    result = compare(run(tmp_path / "old", second=False), run(tmp_path / "new", second=True), old_path="old", new_path="new")
    assert [said for kind, said, _ in told(result) if kind == "dynamic"] == ["size 0 of `x` is dynamic now: 8 -> dynamic"]
    assert all(kind != "new_function" for kind, _, _ in told(result))
