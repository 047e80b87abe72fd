"""The device of a process: a GPU's name when the recorder knew it, else the type that the graph inputs tell, else nothing."""

import pytest

from dynadiag.trace import load

CPU, FIRST, SECOND = "device(type='cpu')", "device(type='cuda', index=0)", "device(type='cuda', index=1)"


@pytest.mark.parametrize(
    ("inputs", "named", "device"),
    [
        ([], None, None),
        ([CPU], None, "cpu"),
        ([CPU, SECOND, FIRST, CPU], None, "cuda:0, cuda:1"),
        ([CPU], "NVIDIA H200", "NVIDIA H200"),
        (["device(type='../x')", 7, None], None, None),
    ],
)
@pytest.mark.parametrize("record", ["dynadiag_config", "dynadiag_exit"])
def test_the_best_evidence_for_the_device_counts(log, tmp_path, inputs, named, device, record):
    log.artifact("dynadiag_environment", {"pid": 1, "device": None}).artifact(record, {"device": named})
    for number, text in enumerate(inputs):
        log.record("describe_tensor", {"id": number, "device": text}, frame=0)
    assert load(log.write(tmp_path)).processes[0].device == device
