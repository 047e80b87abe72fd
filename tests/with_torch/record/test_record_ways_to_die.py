"""However a process ends, every event up to that point is in its log, and the exit status is the script's own."""

import signal
import sys

import pytest

from dynadiag.record import Target

FORKS = """
import ctypes, os, signal, sys, torch

def broken(x, name):
    print("in", name)
    return x + 1

torch.compile(lambda x: x + 2, backend="eager")(torch.ones(2))  # what Dynamo imports is imported once, not in each fork
compiled = torch.compile(broken, backend="eager")

def child(name):
    compiled(torch.ones(2), name)
    sys.stdout.flush()
    if name == "raise":
        raise ValueError("as asked")
    if name == "exit7":
        sys.exit(7)
    if name == "_exit9":
        os._exit(9)
    if name == "segv":
        ctypes.string_at(0)
    if name == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)

statuses = []
for name in ("raise", "exit7", "_exit9", "segv", "kill", "interrupt"):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        child(name)
        os._exit(0)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(statuses)
sys.exit(5)
"""


@pytest.mark.any_torch
def test_forked_processes_that_die_leave_all_their_events(run_recorded):
    outcome = run_recorded(FORKS)
    assert outcome.result.exit_status == 5
    assert outcome.out.splitlines()[-1] == str([1, 7, 9, -signal.SIGSEGV, -signal.SIGKILL, -signal.SIGINT])
    started = [record.content["started_by"] for record in outcome.named("dynadiag_environment")]
    assert sorted(started) == ["fork"] * 6 + ["main"]
    assert len(outcome.breaks) == 6
    assert len({record.log for record in outcome.named("dynamo_graph_break_reason")}) == 6


SPAWNED = """
import multiprocessing, os, subprocess, sys, torch

def broken(x):
    print("in", flush=True)
    return x + 1

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        torch.compile(broken, backend="eager")(torch.ones(2))
        return torch.ones(1) * index

def in_spawned():
    torch.compile(broken, backend="eager")(torch.ones(2))

if __name__ == "__main__":
    if sys.argv[1:] == ["again"]:
        in_spawned()
        os.kill(os.getpid(), 9)
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Data(), num_workers=1, batch_size=2, multiprocessing_context=context)
        print([batch.tolist() for batch in loader])
    print(subprocess.run([sys.executable, __file__, "again"]).returncode)
"""


@pytest.mark.slow
@pytest.mark.any_torch
def test_workers_and_subprocesses_are_recorded(run_recorded):
    outcome = run_recorded(SPAWNED)
    assert outcome.result.exit_status == 0
    assert outcome.out.splitlines()[-1] == "-9"
    assert len(outcome.breaks) == 3
    assert len(outcome.named("dynadiag_exit")) == 3, "the program and both workers ended normally, the killed one did not"
    assert len({record.log for record in outcome.named("dynamo_graph_break_reason")}) == 3


RANKS = """
import os, signal, torch, torch.distributed as dist

dist.init_process_group("gloo")

@torch.compile(backend="eager")
def step(x):
    print("rank", dist.get_rank(), flush=True)
    return x + 1

step(torch.ones(2))
dist.barrier()  # torchrun ends rank 0 as soon as rank 1 is dead: both must have compiled by then
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""


@pytest.mark.any_torch
@pytest.mark.slow
def test_two_ranks_of_which_one_is_killed(run_recorded, tmp_path):
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(tmp_path / "script.py"))
    outcome = run_recorded(RANKS, target=Target("command", command), timeout_s=600)
    assert outcome.result.exit_status == 1
    assert not outcome.result.timed_out
    assert sorted(record.header["rank"] for record in outcome.named("dynamo_graph_break_reason")) == [0, 1]
    assert {record.log.split("_")[5] for record in outcome.named("dynamo_graph_break_reason")} == {"0", "1"}


ABUSE = """
import io, logging, logging.config, os, sys, tempfile, threading, torch

def compiled_break(name, source=None, file="<string>"):
    namespace = {"torch": torch}
    text = source or f"def f(x):\\n    print({name!r})\\n    return x + 1\\n"
    exec(compile(text, file, "exec"), namespace)
    torch.compile(namespace["f"], backend="eager")(torch.ones(2))

compiled_break("start")
logging.config.dictConfig({"version": 1, "disable_existing_loggers": True})
compiled_break("dictConfig")
logging.disable(logging.CRITICAL)
compiled_break("disable")
logging.getLogger("torch.__trace").handlers.clear()
compiled_break("clear")
logging.getLogger("torch.__trace").handlers = []
compiled_break("replaced")
os.chdir("/")
compiled_break("chdir")
os.closerange(3, 64)
compiled_break("closed")
os.closerange(3, 64)
folder = tempfile.mkdtemp()
mine = [os.open(os.path.join(folder, str(number)), os.O_CREAT | os.O_RDWR) for number in range(40)]
compiled_break("reused")
print("mine", sum(os.fstat(descriptor).st_size for descriptor in mine))
thread = threading.Thread(target=compiled_break, args=("thread",))
thread.start()
thread.join()
torch._dynamo.reset()
compiled_break("reset")
strange = os.path.join(os.fsencode(folder), b"caf\\xe9.py")
with open(strange, "wb") as file:
    file.write(b"def f(x):\\n    return x + 1\\n")
compiled_break("", open(strange).read(), os.fsdecode(strange))
deleted = os.path.join(folder, "deleted.py")
compiled_break("", "def f(x):\\n    print('deleted')\\n    return x + 1\\n", deleted)
sys.stderr.close()
compiled_break("stderr")
"""
NAMES = [
    "start",
    "dictConfig",
    "disable",
    "clear",
    "replaced",
    "chdir",
    "closed",
    "reused",
    "thread",
    "reset",
    "deleted",
    "stderr",
]


def test_nothing_silences_the_recorder(run_recorded):
    outcome = run_recorded(ABUSE)
    assert outcome.result.exit_status == 0, outcome.err
    assert outcome.out.splitlines() == [*NAMES[:8], "mine 0", *NAMES[8:]]
    (end,) = outcome.named("dynadiag_exit")
    counted = sum(end.content["counters"]["graph_break"].values())
    assert counted == len(outcome.breaks) >= len(NAMES), "2.11 breaks twice in functions without a file (pytorch#124269), recorded or not"
    assert len(outcome.named("dynadiag_compile_call")) == len(NAMES) + 1
    strange = [record for record in outcome.records if "dynamo_output_graph" in record.header and "udce9" in record.payload]
    assert strange, "a source whose path is not UTF-8 is recorded (with a break in it torch itself fails, recorded or not)"
    assert [record.content for record in outcome.named("dynadiag_reset")] == [{"epoch": 1}]
    assert len({record.log for record in outcome.records}) == 1
