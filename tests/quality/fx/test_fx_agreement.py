"""How good the probe and the rebuilding are: agreement with AOTAutograd's own metadata graph by graph, and the share of graphs that run.

The figures are printed (`pytest -s`). Both must hold on every torch.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from dynadiag import trace
from dynadiag.fx import probe_graph, probe_main
from dynadiag.fx.rebuild import RebuildOptions
from dynadiag.fx.refusal import NotRebuildableError
from dynadiag.fx.running import rebuild_and_try

HERE = Path(__file__).parent
CORPUS = HERE.parents[1] / "corpus" / "mutations"
ALONE = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
AOT_KINDS = ("data", "metadata", "storage")


def record(folder, *arguments):
    command = [sys.executable, str(HERE / "agreement_program.py"), str(folder), *arguments]
    done = subprocess.run(command, env=os.environ | ALONE, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_graph, "LONGEST_S", 1000.0)  # a slow machine must not cost a graph
        assert probe_main.main([str(folder), "--budget-s", "3000"]) == 0
    return trace.load(folder)


@pytest.fixture(scope="module")
def snippets(tmp_path_factory):
    judged = [path for path in sorted(CORPUS.glob("[0-9]*.py")) if "def observe" not in path.read_text()]
    return record(tmp_path_factory.mktemp("corpus") / "run", "corpus", *map(str, judged))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    try:
        pytest.importorskip("torchvision")
    except RuntimeError as error:  # built for another torch than this one, which may be a CPU build
        pytest.skip(str(error))
    pytest.importorskip("transformers")
    return record(tmp_path_factory.mktemp("models") / "run", "models")


def theirs(metadata):
    """Index, kinds and place of each input that AOTAutograd calls mutated."""
    found = {}
    for index, one in enumerate(metadata.inputs):
        if one.is_mutated:
            replaced = one.replaces_storage or one.resizes_storage
            kinds = ["storage"] if replaced else [kind for kind in ("data", "metadata") if getattr(one, f"mutates_{kind}")]
            found[index] = (tuple(kinds), "in_graph" if one.in_graph else "epilogue")
    return found


def ours(probed):
    told = {one.index: (tuple(kind for kind in one.kinds if kind in AOT_KINDS), one.where) for one in probed.mutations or ()}
    return {index: found for index, found in told.items() if found[0]}


def compare(run, epoch=None):
    """(graphs with metadata, mutated inputs, what differs) over all Dynamo graphs of a run, or of one reset epoch of it."""
    epochs = {frame.id: frame.key.epoch for frame in run.frames}
    metadata = {(one.frame, one.attempt): trace.aot_metadata(one.payload) for one in run.mutation_records if one.kind == "aot_metadata"}
    graphs, inputs, differ = 0, 0, []
    for graph in run.graphs:
        said = metadata.get((graph.frame, graph.attempt))
        if graph.kind != "dynamo" or said is None or epoch not in (None, epochs[graph.frame]):
            continue
        graphs, inputs = graphs + 1, inputs + len(theirs(said))
        probed = trace.probe_result(graph.probe)
        if probed.error is not None or ours(probed) != theirs(said):
            differ.append((graph.id, probed.error, ours(probed), theirs(said)))
    return graphs, inputs, differ


def runnable(run):
    """(graphs that run, all graphs, why not by id) over graphs of every kind."""
    why_not = {}
    for graph in run.graphs:
        try:
            details = trace.graph_details(graph.details) if graph.details is not None else None
            trial = rebuild_and_try(trace.read_payload(graph.text), details=details, options=RebuildOptions(device="cpu"))[1]
            reason = trial.why_not
        except NotRebuildableError as error:
            reason = error.message
        if reason is not None:
            why_not[graph.id] = reason
    return len(run.graphs) - len(why_not), len(run.graphs), why_not


def test_probe_agrees_with_aotautograd_on_the_corpus(snippets):
    graphs, inputs, differ = compare(snippets)
    print(f"\ncorpus: {graphs - len(differ)} of {graphs} graphs agree, {inputs} mutated inputs")
    assert graphs >= 70 and inputs >= 55
    assert differ == []


def test_each_mutation_of_the_corpus_has_a_line_of_its_snippet_or_of_the_optimizer(snippets):
    without = []
    for graph in snippets.graphs:
        for one in trace.probe_result(graph.probe).mutations or ():
            places = [place.file for site in one.sites for place in site.stack]
            if not any(str(CORPUS) in file or "/torch/optim/" in file for file in places):
                without.append((graph.id, one.source))
    assert without == []


# Graphs and mutated inputs at least: statistics of BatchNorm, what the optimizer writes, keys and values of the caches.
LEAST = {
    "resnet_training": (2, 180),
    "bert_step": (2, 120),
    "gpt2_generate": (1, 0),
    "llama_static_cache": (1, 4),
    "detection_training": (5, 150),
}


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("number", range(1, 6), ids=list(LEAST))
def test_probe_agrees_with_aotautograd_on_models(models, number):
    name, (least_graphs, least_inputs) = list(LEAST.items())[number - 1]
    graphs, inputs, differ = compare(models, number)
    print(f"\n{name}: {graphs - len(differ)} of {graphs} graphs agree, {inputs} mutated inputs")
    assert graphs >= least_graphs and inputs >= least_inputs
    assert differ == []


def test_nearly_all_recorded_graphs_of_the_corpus_run(snippets):
    running, total, why_not = runnable(snippets)
    print(f"\ncorpus: {running} of {total} graphs run; not: {Counter(reason[:60] for reason in why_not.values())}")
    # The rest: operators and subclasses that only the program has, programs that fail in eager too, a schema object that FX does not print.
    told = (
        "is a private operator",
        "running it raises RuntimeError",
        "`self._tree_spec_constant0` has no annotation",
        "is a TwoTensor, which cannot be created from its annotation",
    )
    assert all(any(part in reason for part in told) for reason in why_not.values()), why_not
    assert running / total >= 0.94


@pytest.mark.slow
@pytest.mark.models
def test_all_recorded_graphs_of_models_run(models):
    running, total, why_not = runnable(models)
    print(f"\nmodels: {running} of {total} graphs run")
    assert why_not == {}
