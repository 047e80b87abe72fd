"""The line that a person sees while something is reduced."""

from __future__ import annotations

from dynadiag_cli.progress import SearchLine


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
