"""What the parts of a guard set cost is timed with `--cost`, and the guards stay as they are."""

import torch
from torch._dynamo import guards

from dynadiag.torch_compat.dynamo.guard_timing import part_times


def step(values, pair, module):
    return values["a"] + values["b"] * pair[0] + module(values["a"])


def test_parts_are_timed_and_the_guards_stay_as_they_are(monkeypatch):
    found, checked = [], guards.profile_guard_manager

    def timed(root, scope, times):
        found.append(part_times(root, scope))
        assert root.check(scope) and root.check(scope)
        return checked(root, scope, times)

    monkeypatch.setattr(guards, "profile_guard_manager", timed)
    compiled, counts = torch.compile(step, backend="eager"), []
    module, one, two = torch.nn.Linear(4, 4), torch.ones(4, 4), torch.ones(4, 4)
    for values in ({"a": one, "b": two}, {"a": one, "b": two}, {"a": two, "b": two}, {"a": two, "b": two}):
        compiled(values, [one, two], module)
        counts.append(len(found))
    assert counts[:2] == [1, 1] and counts[2] == counts[3]  # the same values pass the guards that were timed
    parts = found[0]["parts"]
    assert {"L['values']", "L['pair']", "L['module']", "L['values']['b']"} <= set(parts) and len(parts) <= 40
    assert all(spent >= 0 for spent in parts.values()) and found[0]["whole_us"] > 0
