"""What to change where compiled code runs on one CUDA stream what the program puts on several."""

from __future__ import annotations

from dynadiag.model.report import Advice

# Seen with the profiler on an H200, torch 2.11: both run on two streams again.
STREAMS_OUTSIDE = Advice(
    slug="streams-outside",
    text=(
        "Compile what runs on each stream as a function of its own, and put `with torch.cuda.stream(...)` and the waiting around its call, "
        "in code that is not compiled. A function with `@torch.compiler.disable` keeps its streams too; it runs eagerly."
    ),
)
