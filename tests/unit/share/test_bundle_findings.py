"""The findings of a bundle are those of the run: what was removed still tells its values apart."""

import json
import random
import zipfile

import pytest

from dynadiag import report
from dynadiag.share.bundle import make_bundle
from dynadiag.trace import load
from tests.unit.share.test_redactor import password
from tests.unit.trace.conftest import LogBuilder


def findings(path):
    return [(one.code, one.severity, one.where and one.where.line, one.fingerprint) for one in report.build(load(path)).findings]


def recompiled(texts):
    log = LogBuilder().intern("/srv/proj/train.py").start(0).metrics(0)
    for again in range(1, len(texts)):
        guards = ",\n".join(
            json.dumps(f"0/{at}: L['key'] == {texts[at]!r}  # return x if key else y  # train.py:4 in f") for at in range(again)
        )
        log.artifact("recompile_reasons", f"[\n{guards}\n]", frame=0, again=again).start(0, again).metrics(0, again)
    return log


DRAW = random.Random(5)
DRAWN = [password(DRAW) for _ in range(4)]


@pytest.mark.parametrize(
    "texts",
    [
        [f"postgres://bob:{one}@db.example.net/x" for one in DRAWN],
        [f"hf_{''.join(DRAW.choices('abcdefghABCDEFGH0123456789', k=34))}" for _ in DRAWN],
        [f"the password is {one}" for one in DRAWN],
        [f"Authorization: Bearer {one}" for one in DRAWN],
    ],
)
def test_a_recompile_on_secrets_is_the_same_finding_in_the_bundle(tmp_path, texts):
    before, out = tmp_path / "logs", tmp_path / "out"
    before.mkdir(), out.mkdir()
    recompiled(texts).write(before)
    make_bundle(before, lambda: out)
    with zipfile.ZipFile(out / "bundle.zip") as archive:
        (name,) = (name for name in archive.namelist() if name.startswith("trace/"))
        after = tmp_path / "after"
        after.mkdir()
        (after / name.rpartition("/")[2].split("-", 1)[1]).write_bytes(archive.read(name))
        assert not any(one in archive.read(name).decode() for one in texts)
    assert findings(before) == findings(after)
    assert ("DR03", "warning") in {found[:2] for found in findings(before)}
