"""What the supervisor tells the recorder in the user's process: one environment variable that every child inherits."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

VARIABLE = "DYNADIAG_RECORD"


@dataclass(frozen=True)
class Settings:
    """How to record: the run directory (absolute), the supervisor's pid, the cap of one log, whether to profile, which dynadiag this is.

    `parity_calls`: how many calls of each graph are compared with eager (0: none), with copies of at most `parity_cap_bytes`.
    `key_parts`: also list what the keys of AOTAutograd's cache are made of, where torch does not.
    `project`: the root of the program's project, where it is not the one that is found around it.
    """

    directory: str
    supervisor_pid: int | None
    log_cap_bytes: int
    cost: bool
    dynadiag: str
    parity_calls: int = 0
    parity_cap_bytes: int = 0
    project: str | None = None
    key_parts: bool = False

    def dumps(self) -> str:
        """The value of the environment variable."""
        return json.dumps(asdict(self))


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings | None:
    """The settings that a supervisor left in the environment; None when nobody records or the value is not ours."""
    try:
        return Settings(**json.loads(environment[VARIABLE]))
    except (KeyError, ValueError, TypeError):
        return None
