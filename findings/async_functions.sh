#!/usr/bin/env bash
# torch 2.15.0.
# Guess: torch.compile of an `async def` compiles its body, breaks at each await, and is still a coroutine function.
# Seen:  without an await that suspends, the body is compiled. With one (asyncio.sleep(0)) the call ends with AssertionError "Cannot generate
#        resume function for generator, coroutine, or async generator". inspect.iscoroutinefunction(compiled) is False.
# Met by: inference servers: the AssertionError in a handler that awaits between two model calls; frameworks that decide by
#         iscoroutinefunction take the handler for a plain function.
. "$(dirname "$0")/common.sh"
install torch==2.15.0
run_program <<'PROGRAM'
import asyncio
import inspect

import torch
from torch._dynamo.utils import counters


async def straight(x):
    return x + 1


async def suspended(x):
    y = x + 1
    await asyncio.sleep(0)
    return y * 2


compiled = torch.compile(straight, backend="eager")
print("is a coroutine function:", inspect.iscoroutinefunction(straight), "compiled:", inspect.iscoroutinefunction(compiled))
assert inspect.iscoroutinefunction(straight) and not inspect.iscoroutinefunction(compiled)
assert asyncio.run(compiled(torch.ones(1))).item() == 2 and counters["stats"]["unique_graphs"] == 1
assert asyncio.run(suspended(torch.ones(1))).item() == 4
try:
    asyncio.run(torch.compile(suspended, backend="eager")(torch.ones(1)))
    raise SystemExit("the await was compiled")
except AssertionError as error:
    print("AssertionError:", str(error).splitlines()[0])
    assert "resume function" in str(error)
PROGRAM
