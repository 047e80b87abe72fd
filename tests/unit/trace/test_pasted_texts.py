"""Texts as people paste them: made by real runs on torch 2.6 to 2.15, then quoted, cut, stripped and mixed as in issues.

Each gives the findings of the program that wrote it and no others. The middle of long stacks of packages is left out.
"""

import gzip
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from dynadiag.render import markdown
from dynadiag.render.terminal import print_report, print_summary
from dynadiag.report import build
from dynadiag.trace import load
from dynadiag.trace.pasted_text import unwrapped

FOLDER = Path(__file__).with_name("pasted")
DR01, ITEM, FAILED = "DR01", "scalar read", "DF10"
# By text: code, line and words of each finding, then break events, recompiles, graphs and ranks.
EXPECTED = {
    "limit_size_215_plain": ([(DR01, "limit_size.py:4", "limit (8) because of `tokens.size(0)`")], 0, 1, 0, [None]),
    "limit_module_215_rank": ([(DR01, "limit_module.py:19", "limit (8) because of `self.attn.depth`")], 0, 1, 0, [2]),
    "limit_name_26_quoted": ([(DR01, "limit_name.py:4", "limit (8) because of `name`")], 0, 1, 0, [None]),
    "limit_size_26_no_first_line": ([(DR01, "limit_size.py:4", "limit because of `tokens.size(0)`")], 0, 1, 0, [None]),
    "limit_module_29_ansi": ([(DR01, "limit_module.py:19", "limit (8) because of `self.attn.depth`")], 0, 1, 0, [None]),
    "limit_size_29_no_stamps": ([(DR01, "limit_size.py:4", "limit (8) because of `tokens.size(0)`")], 0, 1, 0, [None]),
    "limit_fullgraph_215": ([(DR01, "fullgraph_limit.py:4", "limit (8) because of `g.size(0)`")], 0, 1, 0, [None]),
    "limit_fullgraph_26_iso": ([(DR01, "fullgraph_limit.py:4", "limit (8) because of `g.size(0)`")], 0, 1, 0, [None]),
    "limit_fullgraph_29_quoted": ([(DR01, "fullgraph_limit.py:4", "limit (8) because of `g.size(0)`")], 0, 1, 0, [None]),
    "recompiles_215_cut_first": ([("DR03", "recompiles.py:4", "3 times because of `mode`, `x.size(0)`")], 0, 3, 0, [None]),
    "recompiles_26_place_stripped": ([("DR03", "recompiles.py:4", "3 times because of `mode`, `x.size(0)`")], 0, 3, 0, [None]),
    "recompiles_verbose_215_indented": ([("DR05", "two_guards.py:4", "2 times because of `x.dtype`, `mode`")], 0, 2, 0, [None]),
    "recompiles_verbose_26_bare": ([("DR03", "recompiles.py:4", "3 times because of `mode`, `x.size(0)`")], 0, 3, 0, [None]),
    "recompiles_grow_26_compose": ([("DR02", "grow.py:4", "3 times because of `cache.size(0)`")], 0, 3, 0, [None]),
    "recompiles_grow_215_crlf": ([("DR02", "grow.py:4", "3 times because of `cache.size(0)`")], 0, 3, 0, [None]),
    "recompile_error_215_iso": (
        [(FAILED, "error_recompile.py:6", "RecompileError"), ("DR03", "error_recompile.py:6", "`k`")], 0, 1, 0, [None],
    ),
    "recompile_error_26": (
        [(FAILED, "error_recompile.py:6", "RecompileError"), ("DR03", "error_recompile.py:6", "`k`")], 0, 1, 0, [None],
    ),
    "breaks_215_slurm": (
        [("GB0059", "breaks.py:7", "builtin operator"), ("GB0124", "breaks.py:8", ITEM), ("GB0170", "breaks.py:9", "branching")],
        3, 0, 0, [3],
    ),
    "breaks_26_ansi_quoted": (
        [("DB01", "breaks.py:7", "print"), ("DB01", "breaks.py:8", ITEM), ("DB01", "breaks.py:9", "Data-dependent jump")],
        3, 0, 0, [None],
    ),
    "breaks_and_graphs_26": (
        [("DB01", "breaks.py:7", "print"), ("DB01", "breaks.py:8", ITEM), ("DB01", "breaks.py:9", "Data-dependent jump")],
        3, 0, 4, [None],
    ),
    "breaks_pickle_215_tabbed": ([("GB0007", "numpy_call.py:9", "marked as skipped")], 1, 0, 0, [None]),
    "item_warning_215": ([("DB01", "item.py:6", ITEM)], 1, 0, 0, [None]),
    "item_warning_and_break_26": ([("DB01", "item.py:6", ITEM)], 1, 0, 0, [None]),
    "fullgraph_print_215_pytest": ([("GB0059", "full_print.py:6", "where none is allowed")], 1, 0, 0, [None]),
    "fullgraph_print_26_actions": ([("DB01", "full_print.py:6", "where none is allowed")], 1, 0, 0, [None]),
    "fullgraph_branch_215_flat": ([("GB0170", "full_branch.py:6", "data-dependent control flow")], 1, 0, 0, [None]),
    "fullgraph_branch_26": ([("DB01", "full_branch.py:6", "data-dependent control flow")], 1, 0, 0, [None]),
    "fullgraph_raise_215_quoted": ([("GB0088", "user_raise.py:7", "Observed exception")], 1, 0, 0, [None]),
    "fullgraph_nonzero_26": ([("DB01", "nms.py:6", "dynamic shape operator")], 1, 0, 0, [None]),
    "backend_failed_215_rank": ([(FAILED, "backend_fail.py:17", "NotImplementedError: no kernel")], 0, 0, 0, [0, 1]),
    "backend_failed_26_no_header": ([(FAILED, "backend_fail.py:17", "NotImplementedError: no kernel")], 0, 0, 0, [None]),
    "suppressed_215": ([("DF04", "suppressed.py:10", "lowering failed")], 0, 0, 0, [None]),
    "cpp_error_215_vllm": ([(FAILED, "cpp_error.py:13", "‘compile’ was not declared in this scope")], 0, 0, 0, [None]),
    "lowering_26_iso_rank": ([(FAILED, "lowering.py:21", "LoweringException: AssertionError: expected three")], 0, 0, 0, [0]),
    "lowering_215_tail": ([(FAILED, "lowering.py:18", "LoweringException: AssertionError: expected three")], 0, 0, 0, [None]),
    "no_compiler_26": ([(FAILED, "no_compiler.py:9", "No working C++ compiler found")], 0, 0, 0, [None]),
    "fake_shape_215": ([(FAILED, "fake_shape.py:11", "TorchRuntimeError")], 0, 0, 0, [None]),
    "fake_shape_26_quoted": ([(FAILED, "fake_shape.py:11", "TorchRuntimeError")], 0, 0, 0, [None]),
    "no_fake_215_indented": ([(FAILED, "unsupported_op.py:11", "TorchRuntimeError")], 0, 0, 0, [None]),
    "export_215": ([(FAILED, "export_dd.py:7", "Could not guard on data-dependent expression u0 > 3")], 0, 0, 0, [None]),
    "dynamo_explain_26": (
        [("DB01", "explain_it.py:6", "Tensor.item"), ("DB01", "explain_it.py:8", "data-dependent control flow")], 2, 0, 3, [None],
    ),
    "lru_warning_215": ([], 0, 0, 0, [None]),
    "cuda_graph_mutated_211": ([("DC04", None, "mutated inputs (1 instances)")], 0, 0, 0, [None]),
    "cuda_graph_cpu_211_bare": ([("DC04", "scale.py:7", "were skipped: cpu device (arg1_1)")], 0, 0, 0, [None]),
    "cuda_graph_overwritten_211": ([("DF11", "over.py:9", "It was made at over.py:5: `return h.sin()`")], 0, 0, 0, [None]),
    "cuda_graph_sizes_211": ([("DC06", None, "9 distinct sizes")], 0, 0, 0, [None]),
    "triton_error_211": ([(FAILED, "tri.py:7", "`tmp1 = nosuch(tmp0)`: NameError")], 0, 0, 0, [3]),
    "out_of_memory_211": ([("DF11", "oom.py:2", "CUDA out of memory")], 0, 0, 0, [None]),
    "two_ranks_one_limit_215": (
        [("GB0059", "full_print.py:6", "on rank 0"), (DR01, "limit_size.py:4", "limit (8) because of `tokens.size(0)`")], 1, 1, 0, [0, 1],
    ),
    "case_01_limit_ranks": ([(DR01, "blocks.py:52", "limit (8) because of `self.attn.depth`")], 0, 1, 0, [2]),
    "case_05_first_line_cut": ([("DR09", "patches.py:31", "guarded for patches.py:40")], 0, 1, 0, [None]),
    "case_06_cudagraph_warnings": (
        [
            ("DF11", "net.py:22", "It was made at net.py:22: `return self.out(h)`"), ("DC04", "cache.py:41", "mutated inputs"),
            ("DC04", "net.py:17", "cpu device"),
        ],
        0, 0, 0, [None],
    ),
    "case_07_dynamo_explain": (
        [("GB0124", "net_explain.py:3", ITEM), ("DB01", "net_explain.py:5", "data-dependent control flow")], 2, 0, 3, [None],
    ),
    "case_09_skip_with_traceback": ([("DB01", "score.py:12", "BuiltinVariable(print)")], 1, 0, 0, [None]),
    "case_10_warning_2023": ([(DR01, None, "limit (8) because of `self.param_groups[0]['lr']`")], 0, 1, 0, [None]),
}  # fmt: skip


def place(finding):
    return None if finding.where is None else f"{Path(finding.where.file).name}:{finding.where.line}"


def shown(report, show=print_summary):
    console = Console(file=io.StringIO(), width=100)
    show(report, console)
    return re.sub(r"\s+", " ", console.file.getvalue())


def facts_of(report):
    summary = report.summary
    found = [(one.code, place(one)) for one in report.findings]
    return found, summary.graph_break_events, summary.recompiles, summary.graphs, [one.rank for one in report.run.processes]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_pasted_text_gives_the_findings_of_its_program(name):
    findings, *counts = EXPECTED[name]
    report = build(load(FOLDER / f"{name}.txt"))
    found, *told = facts_of(report)
    assert (sorted(found, key=str), told) == (sorted(((code, where) for code, where, _ in findings), key=str), counts)
    for code, where, words in findings:
        assert any(words in f"{one.title} {one.why}" for one in report.findings if (one.code, place(one)) == (code, where)), words
    assert not report.failed_passes
    text = shown(report)
    assert "NOTHING WAS COMPILED" not in text and "no record" not in text


def test_all_texts_are_expected():
    assert {path.stem for path in FOLDER.iterdir()} == set(EXPECTED)


def test_what_a_text_cannot_show_is_not_claimed():
    report = build(load(FOLDER / "limit_size_215_plain.txt"))
    said = "How many graphs were compiled is not read from a text, and what ran eagerly without a message is not in it."
    assert said in shown(report) and said in shown(report, print_report) and said in markdown.render(report)
    assert "| graphs | not counted in a text |" in markdown.render(report)
    whole = report.findings[0].why
    assert "torch refused 1 of these recompiles" in whole and "none of the 8 compiled versions" in whole


@pytest.mark.parametrize(
    "counters",
    [
        "Counter({'calls_captured': 16, 'unique_graphs': 8})",
        "stats [('calls_captured', 16), ('unique_graphs', 8)]",
        "defaultdict(<class 'collections.Counter'>, {'frames': Counter({'total': 9, 'ok': 8}), 'stats': Counter({'calls_captured': 16, "
        "'unique_graphs': 8}), 'graph_break': Counter({'call_function print [\"a\"] {}': 2})})",
    ],
)
def test_counters_that_a_text_prints_are_read(tmp_path, counters):
    path = tmp_path / "issue.txt"
    path.write_text(f"{(FOLDER / 'limit_size_215_plain.txt').read_text()}\n{counters}\n")
    report = build(load(path))
    said = "torch's counters in the text: 8 graphs compiled."
    assert said in shown(report) and said in shown(report, print_report) and said in markdown.render(report)
    assert facts_of(report) == facts_of(build(load(FOLDER / "limit_size_215_plain.txt")))
    assert any("2 times" in note and "print" in note for note in report.run.notes) == ("graph_break" in counters)


def test_other_counters_in_a_text_are_not_taken_for_those_of_torch(tmp_path):
    path = tmp_path / "issue.txt"
    path.write_text(f"{(FOLDER / 'limit_size_215_plain.txt').read_text()}\nCounter({{'words': 3}})\nCounter({{'unique_graphs': 'x'}})\n")
    assert "How many graphs were compiled is not read from a text" in shown(build(load(path)))


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith(("limit", "recompiles", "case_01", "case_10"))])
def test_no_text_shows_that_an_object_was_changed(name):
    """A value that another call has is not one that somebody wrote: the other call may be one of another module (case_01)."""
    assert build(load(FOLDER / f"{name}.txt")).mutations == ()


def test_a_print_that_old_torch_names_and_the_frame_that_it_skips():
    found = build(load(FOLDER / "case_09_skip_with_traceback.txt")).findings[0]
    assert "is not known" not in found.why and "forward is not compiled" in found.why and "forward runs eagerly" in found.title
    assert any("print" in advice.text for advice in found.fix), found.why
    text = shown(build(load(FOLDER / "case_09_skip_with_traceback.txt")))
    assert "NOT COMPILED: forward() runs in Python" in text and "NO GRAPH" not in text


def test_an_explanation_by_torch():
    """The hint of torch is kept where nothing else is advised, and nothing is said of texts of graphs, which were not printed."""
    report = build(load(FOLDER / "case_07_dynamo_explain.txt"))
    text = shown(report)
    assert "capture_scalar_outputs = True" in text and "graph's text" not in text
    assert "which inputs of 3 graphs are written is not known" in text
    item = next(finding for finding in report.findings if finding.where.line == 3)
    assert "`int()`" in item.why and "on this line" not in item.why


WRAPPINGS = {
    "quoted": lambda line: f"> {line}",
    "quoted twice": lambda line: f">> {line}",
    "a rank of torchrun": lambda line: f"[default3]:{line}",
    "a worker of Ray": lambda line: f"(RayTrainWorker pid=4242, ip=10.0.0.7) {line}",
    "vLLM": lambda line: f"(EngineCore_DP0 pid=26353) (Worker_TP7 pid=26373) ERROR 12-17 13:32:44 [multiproc_executor.py:815] {line}",
    "mpirun": lambda line: f"[1,0]<stderr>: {line}",
    "syslog": lambda line: f"Mar 11 09:41:07 node7 train[4242]: {line}",
    "a comment": lambda line: f"# {line}",
    "a level": lambda line: f"ERROR: {line}",
    "the time": lambda line: f"09:41:07.123 {line}",
    "a column": lambda line: f"trainer-0 | {line}",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", ["limit_module_29_ansi", "backend_failed_26_no_header", "fake_shape_215", "recompiles_grow_215_crlf"])
def test_what_stands_in_front_of_all_lines_changes_nothing(tmp_path, name, wrapping):
    text = (FOLDER / f"{name}.txt").read_text()
    path = tmp_path / "issue.txt"
    path.write_text("\n".join(map(WRAPPINGS[wrapping], text.rstrip("\n").split("\n"))))
    assert facts_of(build(load(path)))[:4] == facts_of(build(load(FOLDER / f"{name}.txt")))[:4]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "gzip"])
def test_a_text_in_another_encoding(tmp_path, encoding):
    text = (FOLDER / "limit_size_215_plain.txt").read_text()
    path = tmp_path / ("log.txt.gz" if encoding == "gzip" else "log.txt")
    path.write_bytes(gzip.compress(text.encode()) if encoding == "gzip" else text.encode(encoding))
    assert facts_of(build(load(path))) == facts_of(build(load(FOLDER / "limit_size_215_plain.txt")))


def test_two_workers_whose_lines_are_mixed(tmp_path):
    lines = (FOLDER / "backend_failed_26_no_header.txt").read_text().rstrip("\n").split("\n")
    path = tmp_path / "log.txt"
    path.write_text("".join(f"(Worker_TP0 pid=7) {one}\n(Worker_TP1 pid=8) {one}\n" for one in lines))
    report = build(load(path))
    assert [one.rank for one in report.run.processes] == [0, 1] and [one.code for one in report.findings] == [FAILED]
    assert "2 compilations failed" in report.findings[0].why


def test_a_text_without_anything_in_front_stays_as_it_is():
    text = (FOLDER / "breaks_and_graphs_26.txt").read_text()
    assert unwrapped(text) == [text]


@pytest.mark.parametrize(
    "line", ["> " * 5000, "(" * 20_000, "[" * 20_000 + "]", "> [a](b) " * 3000, "1: " * 9000, "\r" * 9000 + "a", "E  " * 7000]
)
def test_hostile_prefixes_are_passed_over(line):
    assert unwrapped(f"{line}\n" * 3)
