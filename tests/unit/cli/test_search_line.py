"""The line that a person sees while something is reduced."""

from __future__ import annotations

import threading

from dynadiag_cli.progress import SearchLine, StatusLine


class Drawn:
    def __init__(self):
        self.texts = []

    def draw(self, text):
        self.texts.append(text)


def test_what_is_left_and_how_fast_it_goes():
    drawn, now = Drawn(), iter([10.0, 14.0, 20.0])
    search = SearchLine(drawn, "nodes", lambda: next(now))
    search.show({"ready_cpu_s": 1.0, "nodes": 60})
    search.show({"nodes": 60, "queries": 2, "phase": "confirm"})
    search.show({"nodes": 12, "queries": 7, "phase": "cut"})
    search.show({"doing": "proving it"})
    search.show({"nodes": 4, "queries": 1, "phase": "confirm"})
    search.show({"done": True, "nodes": None})
    assert drawn.texts == [
        "60 of 60 nodes left, confirming the failure",
        "60 of 60 nodes left, 2 queries, confirm",
        "12 of 60 nodes left, 7 queries, 1.2 a second, cut",
        "proving it",
        "4 of 4 nodes left, 1 queries, confirm",
    ]


def test_a_pipe_is_told_where_the_work_is_while_nothing_comes(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("dynadiag_cli.progress.time.monotonic", lambda: now[0])
    line = StatusLine(20.0)
    line.draw("run 1 of the script")
    line.print_when_due()
    now[0] = 115.0
    line.print_when_due()
    assert capsys.readouterr().err == ""
    now[0] = 121.0
    line.print_when_due()
    line.print_when_due()
    assert capsys.readouterr().err == "dynadiag: run 1 of the script (for 21 s now)\n"
    line.draw("4 of 4 nodes left")
    now[0] = 139.0
    line.print_when_due()
    assert capsys.readouterr().err == ""
    now[0] = 142.0
    line.print_when_due()
    assert capsys.readouterr().err == "dynadiag: 4 of 4 nodes left (for 21 s now)\n"
    line.wipe()
    now[0] = 500.0
    line.print_when_due()
    assert capsys.readouterr().err == ""


def test_a_pipe_is_told_by_itself(monkeypatch, capsys):
    monkeypatch.setattr("dynadiag_cli.progress._LOOK_S", 0.01)
    line = StatusLine(0.0)
    told = []
    monkeypatch.setattr(line, "print_when_due", lambda: told.append(threading.current_thread()))
    with line.ticking():
        while not told:
            pass
    assert told[0] is not threading.main_thread()
    assert not told[0].is_alive()
