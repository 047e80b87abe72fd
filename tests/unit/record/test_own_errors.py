"""An error of the recorder, wherever it happens, never reaches the program that it records."""

from __future__ import annotations

from dynadiag.record import environment, inside


def test_a_process_that_cannot_be_described_is_recorded_all_the_same(tmp_path, monkeypatch):
    def fails(*_):
        raise TypeError("planted")

    monkeypatch.setattr(environment, "describe_process", fails)
    recorder = inside.Recorder(None, "0.1.0")
    log = recorder.start(str(tmp_path), 1 << 20)
    recorder.artifact("dynadiag_hooks", {"one": "ok"})
    recorder.stop(log)
    text = "".join(path.read_text() for path in tmp_path.iterdir())
    assert "environment: TypeError: planted" in text and '"dynadiag_hooks"' in text


def test_a_record_that_cannot_be_written_is_told_and_not_raised(tmp_path):
    class Unprintable:
        def __repr__(self):
            raise RuntimeError("planted")

    recorder = inside.Recorder(None, "0.1.0")
    log = recorder.start(str(tmp_path), 1 << 20)
    recorder.artifact("dynadiag_reset", {"epoch": Unprintable()})
    recorder.stop(log)
    assert "artifact dynadiag_reset: RuntimeError: planted" in "".join(path.read_text() for path in tmp_path.iterdir())
