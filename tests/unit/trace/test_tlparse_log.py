"""`raw.jsonl` as tlparse 0.4 writes it: the same findings as of the log that it was made of, as far as the payloads are there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.report import build
from dynadiag.trace import load, read_payload

TLPARSE = shutil.which("tlparse") or shutil.which("tlparse", path=str(Path(sys.executable).parent))
RECORD = re.compile(r"V(\d\d)(\d\d) (\S+) (\d+) (\S+):(\d+)\] (.*)")


@pytest.fixture
def recorded(log, break_text, graph_text, tmp_path):
    log.intern("/home/me/train.py").start(0).artifact("dynamo_graph_break_reason", break_text, frame=0)
    log.record("dynamo_output_graph", {"sizes": {}}, graph_text, frame=0).metrics(0)
    log.artifact("recompile_reasons", ["0/0: n == 1"], frame=0, again=1).start(0, again=1).metrics(0, again=1)
    return log.write(tmp_path)


def convert(path, folder):
    """What tlparse makes of a log, without its pages."""
    folder.mkdir()
    lines, strings, payload = [], {}, []

    def end():
        if payload:
            lines[-1]["payload_filename"] = name = f"-_0_0_0/payload_{len(lines)}.txt"
            (folder / "-_0_0_0").mkdir(exist_ok=True)
            (folder / name).write_text("\n".join(payload))
            payload.clear()

    for line in path.read_text().rstrip("\n").split("\n"):
        if line.startswith("\t"):
            payload.append(line[1:])
            continue
        end()
        month, day, time, thread, file, number, header = RECORD.match(line).groups()
        values = json.loads(header)
        if "str" in values:
            strings[values["str"][1]] = values["str"][0]
            continue
        stamp = f"2025-{month}-{day}T{time}Z"
        more = {"lineno": int(number), "pathname": f" {file}", "thread": int(thread), "timestamp": stamp}
        lines.append(dict(sorted({**values, **more}.items())))
    end()
    raw = folder / "raw.jsonl"
    rows = [{"string_table": [strings[number] for number in sorted(strings)]}, *lines]
    raw.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    return raw


def findings(path):
    report = build(load(path))
    summary = report.summary
    found = [(one.code, one.title, one.where, one.why) for one in report.findings]
    return found, (summary.frames, summary.graphs, summary.graph_break_events, summary.recompiles, summary.processes)


def test_the_same_findings_as_of_the_log(recorded, tmp_path, graph_text):
    raw = convert(recorded, tmp_path / "tl_out")
    assert findings(raw) == findings(recorded)
    run = load(raw)
    assert read_payload(run.graphs[0].text) == graph_text
    assert [note for note in run.notes if "tlparse" in note] == [
        "tlparse leaves the events of compile phases out of raw.jsonl: there is no compile time by phase"
    ]


@pytest.mark.skipif(TLPARSE is None, reason="tlparse is not installed")
def test_what_tlparse_itself_writes(recorded, tmp_path):
    command = [TLPARSE, str(recorded), "-o", str(tmp_path / "tl"), "--no-browser"]
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert findings(tmp_path / "tl" / "raw.jsonl") == findings(recorded)


def test_missing_payloads_are_named(recorded, tmp_path):
    raw = convert(recorded, tmp_path / "tl_out")
    shutil.rmtree(raw.parent / "-_0_0_0")
    run = load(raw)
    assert len(run.frames) == 2 and run.breaks == () and run.graphs == ()
    (note,) = (note for note in run.notes if "missing" in note)
    assert note.startswith("3 records of raw.jsonl are left out, since their payloads are missing: dynamo_graph_break_reason 1, ")


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hostname", "-_0_0_0/../../secret.txt", "link/secret.txt", "-_0_0_0/link.txt", ""])
def test_a_name_from_the_file_is_never_opened(recorded, tmp_path, name):
    raw = convert(recorded, tmp_path / "tl_out")
    (tmp_path / "secret.txt").write_text("secret")
    (raw.parent / "link").symlink_to(tmp_path)
    (raw.parent / "-_0_0_0" / "link.txt").symlink_to(tmp_path / "secret.txt")
    rows = [json.loads(line) for line in raw.read_text().splitlines()]
    for row in rows:
        if "payload_filename" in row:
            row["payload_filename"] = name
            del row["has_payload"]
    raw.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    run = load(raw)
    assert run.breaks == () and run.graphs == () and any("payloads are missing" in note for note in run.notes)


def test_a_payload_that_is_not_what_torch_wrote_is_missing(recorded, tmp_path):
    raw = convert(recorded, tmp_path / "tl_out")
    for file in (raw.parent / "-_0_0_0").iterdir():
        file.write_text(f"<pre>{file.read_text()}</pre>")
    assert load(raw).graphs == ()


def test_lines_that_are_no_records_are_passed_over(recorded, tmp_path):
    raw = convert(recorded, tmp_path / "tl_out")
    raw.write_text(raw.read_text() + '{"a": \n[1]\n{}\n{"thread": "x", "pathname": 5}\nnonsense\n\n{"artifact": 3, "thread": -4}\n')
    assert findings(raw)[0] == findings(recorded)[0]
