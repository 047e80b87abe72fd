"""What the recorder notes of the machine, in the user's process: read, not asked of another program."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys

from dynadiag.record.environment import machine_facts

EVENTS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
started = []
sys.addaudithook(lambda event, args: started.append(event) if event in EVENTS else None)
print(json.dumps([machine_facts(), started]))
"""


def test_no_program_is_started_for_the_facts_of_the_machine():
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment).stdout
    facts, started = json.loads(said)
    assert started == []
    assert facts["OS"].startswith(f"{os.uname().sysname}-{os.uname().release}")
    assert facts["Python version"].endswith("-bit runtime)")
