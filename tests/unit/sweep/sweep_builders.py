"""Rows, and a folder of small programs that end in every way that a task can end in."""

from __future__ import annotations

from dynadiag.sweep.rows import Finding, TaskRow

PROGRAM = """
import ctypes, os, subprocess, sys, time
what = sys.argv[1]
print("begun", what, flush=True)
if what == "crash": os.kill(os.getpid(), 11)
if what == "wait": time.sleep(float(sys.argv[2]))
if what == "hang": time.sleep(1000)
if what == "raise": raise ValueError("no such luck")
if what == "skip": print("skipped: it needs a download", file=sys.stderr); sys.exit(77)
if what == "memory": kept = b"x" * (400 << 20); time.sleep(1000)
if what == "leave": subprocess.Popen(["sleep", "1000"], process_group=0, env={"LEFT": sys.argv[2]})
if what == "count": open(sys.argv[2], "a").write("x")
"""


def row_of(key="k1", **changed):
    values = {"key": key, "subject": f"{key}.py", "suite": "", "arm": "default", "verb": "explain", "status": "done", "torch": "2.15.0"}
    return TaskRow(**{**values, **changed})


def finding(code="GB0059", severity="warning", fingerprint="38053-6fb5d31f-2813f0-86e27a-cc92b3", **changed):
    values = {"title": f"about {code}", "file": "a.py", "line": 3, **changed}
    return Finding(code=code, severity=severity, fingerprint=fingerprint, **values)


def write_matrix(folder, words, **settings):
    (folder / "p.py").write_text(PROGRAM)
    lines = [f"{name.replace('_', '-')} = {value}" for name, value in settings.items()]
    scripts = ", ".join(f'"p.py {one}"' for one in words)
    (folder / "matrix.toml").write_text("\n".join(['verbs = ["run"]', *lines, "[subjects]", f"scripts = [{scripts}]"]) + "\n")
    return folder / "matrix.toml"
