"""Two hundred and more secrets in a log and in a real recording: none is in the bundle, whose report stays. SECRETS_SEED draws others."""

from __future__ import annotations

import os
import socket
import string
import subprocess
import sys

import pytest

from dynadiag.share.bundle import make_bundle
from dynadiag.share.redaction import Redactor
from tests.quality.fresh_secrets import HEX, KINDS, Maker
from tests.quality.test_redaction import ROOT, _report, _report_of_bundle, all_text
from tests.unit.gate.test_check_command import BREAK
from tests.unit.trace.conftest import LogBuilder

SEED = int(os.environ.get("SECRETS_SEED", "20261129"))


@pytest.fixture(autouse=True)
def seed():
    """A failure prints what draws the same again."""
    print(f"seed {SEED}")


def leaks(out, planted):
    """Also a piece of a value: a text that was cut in the middle of a secret."""
    pieces = {value[at : at + 11]: one.kind for one in planted for value in one.values for at in range(0, max(1, len(value) - 10), 2)}
    return sorted({(kind, name) for name, text in all_text(out) for piece, kind in pieces.items() if piece in text})


def test_there_are_enough_kinds():
    assert len(KINDS) >= 60


@pytest.mark.any_torch
def test_no_fresh_secret_is_in_the_bundle_of_a_log(tmp_path):
    """In a guard, an error, a source, a command line, and as a value, a name and a word of JSON."""
    planted = Maker(SEED).planted(3 * len(KINDS))
    script = "/srv/proj/train.py"
    log = LogBuilder().intern(script).start(0)
    log.artifact("dynamo_graph_break_reason", BREAK.format(script), frame=0)
    for number, one in enumerate(planted):
        text = one.text
        log.record("dynamo_cpp_guards_str", {}, f"| +- EQUALS_MATCH: L['self'].x == {text!r}  # if x:  # train.py:4 in f", frame=0)
        log.artifact("dynadiag_problem", {"kind": "error", "text": f"E{number}: bad {text} of it", "stack": []})
        log.record("describe_source", {"source": f"L['{text}']"}, frame=0)
        log.artifact("dynadiag_environment", {"argv": ["train.py", *text.split(" ")], "env": {"TORCH_X": text}})
        log.artifact("dynadiag_function", {"file": script, "line": 3, "name": "f", "text": f"def f(x):\n    # a\n    {text}\n    return x"})
        log.artifact("other", {text: 1, "said": text, "list": [text]})
    log.metrics(0, co_filename=script, fail_reason=planted[0].text)
    (tmp_path / "logs").mkdir()
    log.write(tmp_path / "logs")
    (tmp_path / "out").mkdir()
    make_bundle(tmp_path / "logs", lambda: tmp_path / "out")
    assert leaks(tmp_path / "out", planted) == []


SCRIPT = """
import torch

KEPT = [
    __KEPT__
]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.names = __GUARDED__

    def forward(self, x, who):
        for name in self.names:
            if name == "nothing":
                x = x + 1
        said = __INVOLVED__
        if who == __COMPARED__:
            x = x + 1
        print(len(said))
        return x * 2

model = torch.compile(Model(), backend="eager")
for who in (__COMPARED__, "other"):
    model(torch.ones(3), who)

def fails(graph, inputs):
    raise RuntimeError(__RAISED__)

try:
    torch.compile(lambda x: x + 1, backend=fails)(torch.ones(4))
except Exception:
    pass
"""


@pytest.mark.any_torch
def test_no_fresh_secret_is_in_the_bundle_of_a_real_run(tmp_path):
    make = Maker(SEED + 1)
    planted = make.planted(200)
    texts = [one.text for one in planted]
    parts = {"__KEPT__": 0, "__GUARDED__": 1, "__INVOLVED__": 2, "__RAISED__": 3}
    source = SCRIPT.replace("__COMPARED__", repr(texts[0]))
    for name, at in parts.items():
        source = source.replace(name, repr(texts[at::4]) if name == "__GUARDED__" else repr(" ".join(texts[at::4])))
    (tmp_path / "train.py").write_text(source)
    key, word = make.of(40, HEX), make.of(11, string.ascii_lowercase)
    done = subprocess.run(
        [sys.executable, "-m", "dynadiag", "explain", "-q", "--out", "run", "train.py", "--wandb-login", key, "--as", word, *texts[:20]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}", "WANDB_API_KEY": key, "MY_PASSWORD": word + "!"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    said = "".join(path.read_text() for path in [*run.glob("*.log"), run / "dynadiag-run.json"])
    assert sum(any(value in said for value in one.values) for one in planted) > 100
    assert key not in said and key not in done.stderr  # its value stood in the environment
    (tmp_path / "out").mkdir()
    make_bundle(run, lambda: tmp_path / "out")
    assert leaks(tmp_path / "out", planted) == []
    before, after = _report(run).findings, _report_of_bundle(tmp_path / "out")
    assert [(one.code, one.severity, one.where and one.where.line) for one in before] == [
        (one.code, one.severity, one.where and one.where.line) for one in after
    ]


def harmless_lines(make):
    """What logs of torch and programs are full of, that only looks drawn at random."""
    small = string.ascii_lowercase + "234567"
    for _ in range(40):
        digest, revision, sha, key = make.of(32, HEX), make.of(40, HEX), make.of(64, HEX), make.of(51, small)
        yield f'V1127 10:00:00.000000 1 torch/_dynamo/x.py:1] {{"chromium_event": {{}}, "has_payload": "{digest}"}}'
        yield f"fx graph cache hit for key f{key}"
        yield f'{{"name": "fx_graph_cache_miss", "key": "f{key}", "cache_state": "miss"}}'
        yield f"Output code written to: /tmp/torchinductor_root/{key[:2]}/c{key}.py"
        yield f"/root/.triton/cache/{make.of(52, string.ascii_uppercase + '234567')}/triton_poi_fused_add_mul_{make.of(2, '123456789')}.ptx"
        yield f"[{key}] system_info[hash]: {sha}"
        yield f"# torch git version: {revision}"
        yield f"# torch version: 2.16.0a0+git{revision[:7]}"
        yield f"system_info[version]: {{'triton': ('3.5.0+{sha}-{sha[::-1]}', []), 'cuda': '12.8'}}"
        yield f"commit {revision}"
        yield f"HEAD is now at {revision[:10]} Fix the build"
        yield f"git+https://github.com/pytorch/pytorch@{revision}#egg=torch"
        yield f"'backend_hash': '{sha.upper()}', 'are_deterministic_algorithms_enabled': False"
        yield f"    --hash=sha256:{sha}"
        yield f"{sha}  torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl"
        yield f"{digest} *weights/model.safetensors"
        yield f"models--meta-llama--Llama-3.2-1B/snapshots/{revision}/config.json"
        yield f"torch.ops.load_library('/opt/build/{digest}.so')"
        yield f"triton_per_fused__native_batch_norm_legit_no_training_add_relu_{make.of(2, '123456789')} = async_compile.triton("
        yield f"buf{make.of(3, '123456789')} = empty_strided_cuda((16, 1024, 64), (65536, 64, 1), torch.bfloat16)  # 0x7f{make.of(10, HEX)}"
        yield f"%x : f32[{make.of(2, '123456789')}, s77]: sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
        yield f'{{"process_group": "{make.uuid()}", "frame_key": "{make.of(1, "123456789")}", "co_name": "forward"}}'
        yield f"___check_obj_id(L['self'].layers[{make.of(1, '123456789')}], {make.of(15, '123456789')})"


def test_harmless_lines_stay_as_they_are():
    lines = list(harmless_lines(Maker(SEED + 2)))
    redactor = Redactor()
    for line in lines:
        redactor.learn(line)
    changed = [(line, shown) for line in lines if (shown := redactor.text(line, "x").replace("user1", "root")) != line]
    assert len(changed) <= 0.02 * len(lines), changed[:20]


def test_nothing_is_sent(monkeypatch):
    """detect-secrets can ask issuers whether a token is valid."""

    def refused(*args, **words):
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    redactor = Redactor()
    for one in Maker(SEED).planted(len(KINDS)):
        redactor.learn(one.text)
        redactor.text(one.text, "x")
