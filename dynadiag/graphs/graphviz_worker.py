"""The process in which Graphviz lays out, since it is C: asked in JSON lines for the layout of a DOT text, with limits of its own.

`python -P -m dynadiag.graphs.graphviz_worker [DOT PROGRAM]`: with the libraries of pygraphviz, or with that program.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

from dynadiag.json_lines import Speaker, parsed

_MEMORY_BYTES = 2 << 30  # of addresses: the libraries alone map 300 MiB
LAYOUT_CPU_S = 6
"""CPU seconds of one layout: a machine under load shall not decide how a picture looks."""


def _limit_resources() -> None:
    for kind, limit in ((resource.RLIMIT_AS, _MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        soft, hard = resource.getrlimit(kind)
        known = [value for value in (soft, hard, limit) if value != resource.RLIM_INFINITY]
        resource.setrlimit(kind, (min(known), hard))


def _lay_out(text: str, program: str | None) -> str:
    """Graphviz' own JSON of the graph with positions."""
    if program is not None:
        limits = f'ulimit -t {LAYOUT_CPU_S}; exec "$0" -Kdot -Tjson0'
        done = subprocess.run(["/bin/sh", "-c", limits, program], input=text.encode(), capture_output=True, check=True)
        return done.stdout.decode("utf-8", "replace")
    import pygraphviz

    drawn = pygraphviz.AGraph(string=text).draw(prog="dot", format="json0")
    return drawn.decode("utf-8", "replace") if isinstance(drawn, bytes) else str(drawn)


def main() -> None:
    """Answer until nobody asks any more."""
    program = sys.argv[1] if len(sys.argv) > 1 else None
    speaker = Speaker()
    speaker.take_stdout()
    _limit_resources()
    with os.fdopen(0, "r", encoding="utf-8") as questions:
        for line in questions:
            text = (parsed(line) or {}).get("dot")
            signal.setitimer(signal.ITIMER_PROF, LAYOUT_CPU_S)  # ends the process
            try:
                speaker.say({"layout": _lay_out(str(text), program)})
            except Exception as error:  # noqa: BLE001 - the border around foreign code: Graphviz and what binds it
                speaker.say({"error": f"{type(error).__name__}: {error}"[:300]})


if __name__ == "__main__":
    main()
