"""A cold and a warm run of one script with inductor: both are timed, and the caches say which was which."""

import pytest

from dynadiag.passes.find_compile_time import find_compile_time
from dynadiag.record import RecordOptions, Target, record
from dynadiag.trace import load

SCRIPT = """
import torch


def step(x):
    return (x * 2).sin().sum()


torch.compile(step)(torch.ones(8))
"""


@pytest.fixture(scope="module")
def times(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compile_time")
    (folder / "step.py").write_text(SCRIPT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "cache"))
        runs = [record(Target("script", (str(folder / "step.py"),)), RecordOptions(out=folder / name)) for name in ("cold", "warm")]
    return [find_compile_time(load(run.directory)).compile_time for run in runs]


@pytest.mark.slow
def test_parts_add_up_and_caches_are_told_apart(times):
    cold, warm = times
    for time in times:
        assert time.why is None
        assert sum(time.phases.values()) == pytest.approx(time.total_s)
        assert sum(frame.total_s for frame in time.frames) == pytest.approx(time.total_s)
    assert cold.caches["fx_graph"] == {"miss": 1}
    assert cold.phases["inductor"] > 0
    assert set(warm.caches["fx_graph"]) == {"hit"}
