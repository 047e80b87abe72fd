"""What a recording or a stranger's script may set: an allow-list of names and kinds of values, at every door."""

import json
import math

import pytest

from dynadiag.reduce.sources.recording import capture_recorded
from dynadiag.reduce.sources.torch_repro import read_torch_repro
from dynadiag.torch_compat.dynamo.recorded_options import is_usable, left_out, usable_options

GRAPH = 'class GraphModule(torch.nn.Module):\n    def forward(self, x: "f32[4][1]cpu"):\n        y = x.sin()\n        return (y,)\n'
HOSTILE = {
    "cpp.cxx": "/tmp/evil",
    "cuda.cuda_cxx": "/tmp/evil",
    "cpp.march": "native -fplugin=/tmp/evil.so",
    "aot_inductor.output_path": "/tmp/out",
    "aot_inductor.custom_op_libs": "evil.so",
    "trace.upload_tar": "os.system",
    "trace.debug_dir": "/tmp",
    "trace.enabled": True,
    "post_grad_custom_pre_pass": "torch.hub.load",
    "global_cache_dir": "/tmp/cache",
    "fx_graph_remote_cache": True,
    "rocm.rocm_home": "/tmp",
    "cutlass.cutlass_dir": "/tmp",
    "halide.cpu_target": "host",
    "worker_start_method": "fork",
    "max_autotune_gemm_backends": "ATEN;rm",
    "max_autotune": 1,
    "cpp.threads": "4",
    "cpp.simdlen": math.inf,
    "realize_opcount_threshold": 10**30,
    "nan_asserts": [True],
    "no such": True,
    "": True,
    "__class__": True,
}
FINE = {"max_autotune": True, "cpp.threads": 4, "max_autotune_gemm_backends": "ATEN,CPP", "cpp.simdlen": None, "freezing": False}


def test_options_of_a_log_are_kept_by_name_and_kind(tmp_path):
    records = [
        ({"artifact": {"name": "dynadiag_config", "encoding": "json"}}, json.dumps({"inductor": {**HOSTILE, **FINE}})),
        ({"dynamo_output_graph": {}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}, GRAPH),
    ]
    log = tmp_path / "dedicated_log_torch_trace_7.log"
    lines = []
    for metadata, payload in records:
        lines += [f"V1121 07:22:11.076000 3362 torch/_dynamo/output_graph.py:1] {json.dumps({**metadata, 'has_payload': '0'})}"]
        lines += [f"\t{line}" for line in payload.splitlines()]
    log.write_text("\n".join(lines) + "\n")
    setting = json.loads((capture_recorded(log, "g0", tmp_path, backend=None) / "setting.json").read_text())
    assert dict(setting["configs"]) == {f"inductor.{name}": value for name, value in FINE.items()}
    assert not any("/" in str(value) or "os.system" in str(value) for _, value in setting["configs"])
    assert "inductor.cpp.march" in setting["configs_lost"]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_names_programs_files_or_code_is_never_set(name):
    assert not is_usable(f"inductor.{name}", HOSTILE[name])


def test_options_of_a_repro_are_kept_by_the_same_rule():
    repro = read_torch_repro(
        "import torch\nimport torch._inductor.config\nfrom torch._dynamo.repro.after_aot import run_repro\n"
        "torch._inductor.config.cpp.cxx = '/tmp/evil'\ntorch._inductor.config.cuda.cuda_cxx = '/tmp/evil'\n"
        "torch._inductor.config.max_autotune = True\ntorch._inductor.config.trace.enabled = True\n"
        "class Repro(torch.nn.Module):\n    def forward(self):\n        return ()\n"
        "def load_args(reader):\n    pass\nrun_repro(Repro(), load_args)\n"
    )
    assert repro.configs == (("inductor.max_autotune", True),)
    assert repro.lost == ("inductor.cpp.cxx", "inductor.cuda.cuda_cxx")


def test_what_is_left_out_is_one_line():
    _, left = usable_options([(f"inductor.x{number}\n\x1b[31m", "") for number in range(9)])
    assert len(left) == 9 and left_out(left).isprintable() and left_out(left).endswith("and 4 more")
