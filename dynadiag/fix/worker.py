"""The process from which runs of a proof are forked: it has imported torch, and answers each JSON line on stdin with one on stdout.

python -P -m dynadiag.fix.worker [training]
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

import dynadiag
import dynadiag.fix.inside.observing  # before the forks, which need it
from dynadiag.capture.reach import seed_generators
from dynadiag.children.forked import Tell, end_with_parent, keep_for_children, run_forked
from dynadiag.files import write_file
from dynadiag.fix.inside.judging import compared, first_difference, has_gradients, load, without_attributes
from dynadiag.fix.inside.judging_edits import compared_with_edit
from dynadiag.fix.inside.running import RunJob, run_job
from dynadiag.json_lines import Speaker, leave
from dynadiag.private_view.view import loads
from dynadiag.scratch import scratch
from dynadiag.torch_compat.dynamo.compiling import cuda_is_lost, import_dynamo, import_for_sizes
from dynadiag.torch_compat.dynamo.stopping import compile_with_a_break

_COMPARE_S = 600.0


def warm_up(*, training: bool) -> None:
    """What a first compile, recording and copy of values imports and builds, children inherit: a run takes 0.36 instead of 0.59 CPU s.

    With `training` also what compiles a backward and an optimizer: 0.42 instead of 1.15. Where a GPU is in sight nothing is compiled.
    """
    gpu = torch.cuda.is_available()
    import_dynamo(inductor=gpu or training, training=training)
    if gpu:
        return
    try:
        with scratch("fix") as folder, dynadiag.observe(Path(folder) / "run"):
            compile_with_a_break("aot_eager")
            torch.save({}, Path(folder) / "values")
        import_for_sizes()
        seed_generators()
    except Exception:  # noqa: BLE001 - the border around a candidate: the compiler itself runs here, and the children will say it
        traceback.print_exc()


def forked(message: dict[str, Any]) -> dict[str, Any]:
    """One run in a child, or in a fresh process that the child starts; `ended` is False where it crashed or took too long.

    A child can use CUDA, which this process never initialises; of other devices (`on_device`) that is not known.
    """
    job = RunJob(**message["job"])
    # Asked before the fork: without a GPU too a warm-up leaves children that "have lost" it (torch 2.15).
    gpu = torch.cuda.is_available()
    alone = bool(message.get("on_device")) and not gpu

    def work(tell: Tell) -> None:
        tell((_run_alone if alone or (gpu and cuda_is_lost()) else run_job)(job))

    view = loads(message["view"]) if message.get("view") else None
    report = run_forked(work, timeout_s=float(message["timeout_s"]), view=view)
    told = next((record for record in report.messages if "exit_status" in record), None)
    broken = next((mapping["broken"] for mapping in report.messages if "broken" in mapping), None)
    why = None
    if told is None:
        last = (broken or "").strip().rpartition("\n")[2] or report.signal or f"exit status {report.exit_status}"
        why = f"it did not end within {message['timeout_s']:.0f} s" if report.timed_out else f"its process ended: {last}"
    return {**(told or {}), "ended": told is not None, "why": why, "cpu_s": round(report.cpu_s, 2)}


def _run_alone(job: RunJob) -> dict[str, Any]:
    """The run in a process that was not forked from one with torch: what a process knows of a device may not outlive a fork."""
    file = Path(job.output) / "job.json"
    write_file(file, json.dumps(job.to_json()))
    ended = subprocess.run([sys.executable, "-P", "-m", "dynadiag.fix.inside.running", str(file)], stdin=subprocess.DEVNULL, check=False)
    reply = file.with_suffix(".reply")
    if not reply.exists():
        raise ChildProcessError(f"the fresh process ended with exit status {ended.returncode}")
    told: dict[str, Any] = json.loads(reply.read_text("utf-8"))
    return told


def compare(message: dict[str, Any]) -> dict[str, Any]:
    """What differs first between two runs, and how many calls of each callable there were to compare."""
    settings = frozenset(message["settings"])
    files = [message["reference"], message["other"], *message["noisy"], *filter(None, [message.get("again")])]
    reference, other, *noisy = (without_attributes(load(item), settings) for item in files)
    again = noisy.pop() if message.get("again") else []
    rounds = bool(message.get("rounds"))
    if message.get("edited"):
        return compared_with_edit(reference, other, again, noisy, rounds=rounds).to_json()
    difference = first_difference(reference, other, again, noisy, settings.union(message["free"]), rounds=rounds)
    return {"difference": difference, "calls": compared(reference)}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """The reply to one message: what a run came to, what differs between two, or whether gradients can flow."""
    if message["do"] == "run":
        return forked(message)
    if message["do"] == "gradients":
        return {"gradients": has_gradients(load(message["reference"]))}
    if not torch.cuda.is_available():
        return compare(message)
    # On the GPU, which this process must never see itself: the children of one that has initialised CUDA cannot use it.
    report = run_forked(lambda tell: tell(compare(message)), timeout_s=_COMPARE_S)
    if not report.messages or "broken" in report.messages[-1]:
        raise ChildProcessError(f"the values could not be compared: {(report.output or report.signal or 'no reply').strip()[-500:]}")
    return report.messages[-1]


def main() -> None:
    """Serve until stdin ends."""
    speaker = Speaker()
    speaker.take_stdout()
    end_with_parent(os.getppid())
    torch.set_num_threads(1)
    warm_up(training="training" in sys.argv[1:])
    keep_for_children()
    speaker.say({"ready": True})
    for line in sys.stdin:
        message = json.loads(line)
        try:
            reply = answer(message)
        except Exception as error:  # noqa: BLE001 - our own error: its traceback goes to the log, one line to who asked
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        with contextlib.suppress(BrokenPipeError):
            speaker.say(reply)


if __name__ == "__main__":
    main()
    leave(0)
