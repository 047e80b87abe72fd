"""Mutations against known truth: the shared corpus, and snippets of our own of the same kinds that the pass was not written against.

Of each snippet the reported effects contain its class, none that holds without a condition is worse than its truth, and each mutated tensor
input has its source and a line of the snippet. `S7_free` is met by reporting nothing that costs. The graphs of the corpus are also asked
whether the probe agrees with AOTAutograd's own metadata and whether they run. The figures are printed (`pytest -s`).
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from dynadiag import trace
from dynadiag.fx import probe_main
from dynadiag.passes.find_mutations import find_mutations
from dynadiag.passes.find_uncaught import find_uncaught
from dynadiag.passes.mutation_facts import ORDER
from dynadiag.record import RecordOptions, Target
from dynadiag.record import record as record_program
from dynadiag.trace import load
from tests.quality.fx.agreement import compare, runnable

HERE = Path(__file__).parent
CORPUS = HERE.parent / "corpus" / "mutations"
OWN = HERE / "mutation_snippets"
CLASSES = {
    "S0_silent_wrong": (),  # needs parity
    "S1_hard_failure": ("error",),
    "S2_eager_fallback": ("eager_fallback", "error"),
    "S3_graph_break": ("graph_break",),
    "S4_recompile": ("recompile",),
    "S5_no_cudagraph": ("cudagraph_skip",),
    "S6_extra_copy": ("copy_back", "extra_copy"),
    "S6_writeback_check": (),  # an upper bound: the back end may remove it
    "S7_free": (),
    "USERBUG": ("error",),
}
# A double backward fails for any compiled function, with or without a mutation: the error is the program's, and no mutation is blamed.
FAILS_WITHOUT_MUTATION = "99_double_backward"
# Their inputs require grad, so the runtime epilogue writes them behind the graph and no CUDA graph is skipped (seen on an H200 with torch
# 2.11); the corpus calls them S5 because the same lines would skip one under no_grad. The report says so with that condition.
SKIPS_UNDER_NO_GRAD = ("77_inplace_relu_after_break", "93_set_under_grad", "103_nonleaf_view_input_grad", "135_detached_alias_escapes")
NEWEST = torch.__version__ >= "2.15"


def classes(text):
    """The classes of this torch; the corpus has them for 2.13 and 2.15 where they differ."""
    listed = re.search(r"# SEVERITY: (.*)", text)[1].split()
    if ":" in listed[0]:
        by_version = dict(part.split(":") for part in listed)
        return by_version["2.15" if NEWEST else "2.13"].split("+")
    return listed


def judged(folder):
    files = sorted(folder.glob("*.py")) if folder.is_dir() else []
    named = {file: set(classes(file.read_text())) for file in files}
    return [file for file, found in named.items() if found - {"OBSERVE", "S0_silent_wrong"}]


# Compiled graphs are not taken from a cache (snippet 157 shows why); what the C++ compiler can do is not tried again.
ALONE = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


def record(files, folder):
    command = [sys.executable, str(HERE / "mutation_runner.py"), str(folder), *map(str, files)]
    subprocess.run(command, env={**os.environ, **ALONE}, capture_output=True, timeout=1500, check=True)
    # What fails at run time has to end a program of its own, as it does for its user.
    for file in files:
        if file.name.startswith(("105_", "155_", "99_")):
            shutil.rmtree(folder / file.stem)
            record_program(Target("script", (str(file),)), RecordOptions(out=folder / file.stem, environment=ALONE))
            assert probe_main.main([str(folder / file.stem), "--budget-s", "3000"]) == 0


def problems(file, folder):
    """What is wrong with the report on one snippet, in words."""
    text = file.read_text()
    truth = classes(text)
    mutations = find_mutations(load(folder / file.stem)).mutations
    reported = {effect["kind"] for one in mutations for effect in one.effects}
    if file.stem == FAILS_WITHOUT_MUTATION and find_uncaught(load(folder / file.stem)).findings:
        reported.add("error")
    for name in truth:
        if CLASSES[name] and not reported.intersection(CLASSES[name]):
            yield f"{name} is missing, reported: {sorted(reported)}"
    allowed = min(ORDER.index(kind) for name in truth for kind in (CLASSES[name] or ("copy_back" if "S6" in name else "free",)))
    claimed = {effect["kind"] for one in mutations for effect in one.effects if "condition" not in effect}
    worst = min((ORDER.index(kind) for kind in claimed), default=len(ORDER))
    if worst < allowed:
        yield f"worse than the truth: {ORDER[worst]}"
    for source, code in expected_inputs(text):
        yield from wrong_place(source, code, mutations, file)


def expected_inputs(text):
    """The mutated inputs: of the corpus by what AOTAutograd says there, of our own by the line that writes."""
    for source, code in re.findall(r"# INPUT: (\S+) by `(.*)`", text):
        yield source, code
    version = r"(?:2\.15|2\.13 = 2\.15)" if NEWEST else r"(?:2\.13|2\.13 = 2\.15)"
    for listed in re.findall(rf"# EXPECT {version} [^\n]*?mutated=\[([^\n]*?)\](?: |\n|$)", text):
        for source in re.findall(r"([LG]\['[^=\"]*?)=(?:data|storage|metadata)/", listed):
            yield source.removeprefix("infer:").removeprefix("joint:"), None


def wrong_place(source, code, mutations, file):
    found = [one for one in mutations if one.input == source]
    sites = [site for one in found for site in one.sites]
    if not found:
        yield f"{source} is not reported"
    elif not any(site["file"] == str(file) and (code is None or code in str(site["code"])) for site in sites):
        yield f"{source} has no line of the snippet: {[(site['file'], site['line'], site['code']) for site in sites]}"


def score(files, folder):
    """Name and problems of the snippets that are judged wrong, and the score in words."""
    wrong = {file.stem: found for file in files if (found := list(problems(file, folder)))}
    text = f"{len(files) - len(wrong)} of {len(files)} snippets right on torch {torch.__version__}; wrong: {wrong or 'none'}"
    print(text)
    return wrong, text


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The recordings of the corpus and of our own snippets, made by one process."""
    folder = tmp_path_factory.mktemp("corpus")
    record([*judged(CORPUS), *judged(OWN)], folder)
    return folder


@pytest.fixture(scope="module")
def runs(corpus):
    return {file.stem: load(corpus / file.stem) for file in judged(CORPUS)}


@pytest.mark.slow
def test_the_corpus(corpus, runs):
    files = judged(CORPUS)
    wrong, text = score(files, corpus)
    assert not wrong, text
    assert not list(disagreements(runs))
    for name in SKIPS_UNDER_NO_GRAD:
        effects = [effect for one in find_mutations(runs[name]).mutations for effect in one.effects]
        conditions = [effect.get("condition", "none") for effect in effects if effect["kind"] == "cudagraph_skip"]
        assert conditions and all("torch.no_grad" in condition for condition in conditions), (name, conditions)
        assert any(effect["kind"] == "copy_back" for effect in effects)


def disagreements(runs):
    """What the probe judges otherwise than AOTAutograd's own metadata, over all graphs."""
    for name, run in runs.items():
        for note in find_mutations(run).notes:
            if "AOTAutograd says" in note:
                yield name, note


def test_the_probe_agrees_with_aotautograd(runs):
    found = {name: compare(run) for name, run in runs.items()}
    graphs, inputs = (sum(each) for each in zip(*(one[:2] for one in found.values()), strict=True))
    differ = {name: one[2] for name, one in found.items() if one[2]}
    print(f"\ncorpus: {graphs - len(differ)} of {graphs} graphs agree, {inputs} mutated inputs")
    assert graphs >= 70 and inputs >= 55
    assert differ == {}


def test_each_mutation_has_a_line_of_its_snippet_or_of_the_optimizer(runs):
    without = []
    for name, run in runs.items():
        for graph in run.graphs:
            for one in trace.probe_result(graph.probe).mutations or ():
                places = [place.file for site in one.sites for place in site.stack]
                if not any(str(CORPUS) in file or "/torch/optim/" in file for file in places):
                    without.append((name, graph.id, one.source))
    assert without == []


def test_nearly_all_recorded_graphs_run(runs):
    found = [runnable(run) for run in runs.values()]
    running, total = (sum(each) for each in zip(*(one[:2] for one in found), strict=True))
    why_not = [reason for one in found for reason in one[2].values()]
    print(f"\ncorpus: {running} of {total} graphs run; not: {Counter(reason[:60] for reason in why_not)}")
    # The rest: operators and subclasses that only the program has, programs that fail in eager too, a schema object that FX does not print,
    # and a post-grad graph of Inductor that takes the items of `_foreach_add_`, which gives None (2.15).
    told = (
        "is a private operator",
        "running it raises RuntimeError",
        "running it raises TypeError: 'NoneType' object is not subscriptable",
        "`self._tree_spec_constant0` has no annotation",
        "is a TwoTensor, which cannot be created from its annotation",
    )
    assert all(any(part in reason for part in told) for reason in why_not), why_not
    assert running / total >= 0.92


def test_own_snippets(corpus):
    files = judged(OWN)
    assert len(files) >= 20
    wrong, text = score(files, corpus)
    assert not wrong, text
