"""A script that starts a process group: an arm is a group of one by itself, whatever the other arms do."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping
from typing import Any

from dynadiag.errors import UsageError

_MARK = "_dynadiag_alone"


def stay_alone(torch: Any) -> None:
    """Replace `torch.distributed.init_process_group` by one that refuses a larger group in one line, and meets nobody for a group of one.

    Arms live beside each other: the second would find the port of the first in use, and wait for ranks that nobody starts.
    """
    distributed = torch.distributed
    if not distributed.is_available() or hasattr(distributed.init_process_group, _MARK):
        return
    original = distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **options: Any) -> Any:
        given = inspect.signature(original).bind(*args, **options).arguments
        size = _size(given)
        if size > 1:
            raise UsageError(
                f"bench compares single processes, and the program starts a process group of {size}: run it alone, as one rank"
            )
        if size == 1 and given.get("store") is None:
            given.update(store=distributed.HashStore(), rank=0, world_size=1)
            given.pop("init_method", None)
        return original(**given)

    setattr(init_process_group, _MARK, True)
    distributed.init_process_group = init_process_group
    distributed.distributed_c10d.init_process_group = init_process_group


def _size(given: Mapping[str, Any]) -> int:
    """The size of the group that is asked for; 0 where it is not said."""
    if (given.get("world_size") or -1) > 0:
        return int(given["world_size"])
    by_environment = given.get("store") is None and given.get("init_method") in (None, "env://") and os.environ.get("RANK", "").isdecimal()
    said = os.environ.get("WORLD_SIZE", "")
    return int(said) if by_environment and said.isdecimal() else 0
