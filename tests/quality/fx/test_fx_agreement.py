"""How good the probe and the rebuilding are on models: agreement with AOTAutograd's own metadata graph by graph, and that all graphs run.

The figures are printed (`pytest -s`). `tests/quality/test_mutations_truth.py` asks the same of the corpus of mutations.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag import trace
from dynadiag.fx import probe_graph, probe_main
from tests.quality.fx.agreement import compare, runnable

HERE = Path(__file__).parent
ALONE = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


def record(folder):
    command = [sys.executable, str(HERE / "agreement_program.py"), str(folder)]
    done = subprocess.run(command, env=os.environ | ALONE, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_graph, "LONGEST_S", 1000.0)  # a slow machine must not cost a graph
        assert probe_main.main([str(folder), "--budget-s", "3000"]) == 0
    return trace.load(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    try:
        pytest.importorskip("torchvision")
    except RuntimeError as error:  # built for another torch than this one, which may be a CPU build
        pytest.skip(str(error))
    pytest.importorskip("transformers")
    return record(tmp_path_factory.mktemp("models") / "run")


# Graphs and mutated inputs at least: statistics of BatchNorm, what the optimizer writes, keys and values of the caches.
LEAST = {
    "resnet_training": (2, 150),
    "bert_step": (2, 80),
    "gpt2_generate": (1, 0),
    "llama_static_cache": (1, 2),
    "detection_training": (5, 100),
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


@pytest.mark.slow
@pytest.mark.models
def test_all_recorded_graphs_of_models_run(models):
    running, total, why_not = runnable(models)
    print(f"\nmodels: {running} of {total} graphs run")
    assert why_not == {}
