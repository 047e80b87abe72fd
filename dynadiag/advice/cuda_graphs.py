"""What to change where CUDA graphs were skipped, cut into parts or recorded again; by torch's reason."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.model.report import Advice

CLONE_WHAT_IS_KEPT = Advice(
    slug="clone-what-is-kept",
    text=(
        "Clone what you keep: y = compiled(x).clone(). Under mode='reduce-overhead' an output lives in the memory of a CUDA graph, "
        "which the next call overwrites; torch.compiler.cudagraph_mark_step_begin() marks where a step begins."
    ),
    options=("torch.compiler.cudagraph_mark_step_begin",),
)
_SKIP_SIZES = "torch._inductor.config.triton.cudagraph_skip_dynamic_graphs"


SIZES_THAT_REPEAT = Advice(
    slug="sizes-that-repeat",
    text=(
        "Make the sizes repeat (pad to a few), and pass a number that changes with each call as a tensor. Where neither is possible, "
        "CUDA graphs cannot help: compile without them."
    ),
)
"""Where sizes do not repeat, so that none is ever recorded (2.11 to 2.15)."""

NUMBER_READ = Advice(
    slug="number-stays-tensor",
    text=(
        "Keep the number that is read from a tensor (`.item()`) a tensor: drop `.item()` where it is only computed with. An int that is "
        "read so is a size to CUDA graphs: each value would be recorded anew."
    ),
)


def partition_advice(reasons: Sequence[str], on_cpu: Sequence[str], operators: Sequence[str] = ()) -> tuple[Advice, ...]:
    """The change for the first reason that has one (`Scheduler.should_partition`, 2.11 to 2.15); `on_cpu` are the inputs on the CPU."""
    text = " ".join(reasons)
    if operators and all("_local_scalar_dense" in name for name in operators):
        return (NUMBER_READ,)
    if re.search(r"\bcpu ops|DeviceCopy ops|cross-device ops", text):
        if any(name.endswith("(a number)") for name in on_cpu):
            text = "A number that changes is passed into the graph as a tensor on the CPU. Make it a tensor on the GPU where it is set, as"
            given = "`torch.tensor(..., device=...)` (an optimizer's `lr`, with `capturable=True`): then no copy of it splits the graph."
            return (Advice(slug="number-onto-the-gpu", text=f"{text} {given}"),)
        if on_cpu:
            names = ", ".join(f"`{name}`" for name in on_cpu[:4])
            moved = f"Make {names} on the GPU (`device=`, `.to(device)`; `register_buffer` for a tensor of a module)"
            return (Advice(slug="onto-the-gpu", text=f"{moved}: then no copy of it splits the graph."),)
        after = "Take the copy to the CPU out of the compiled function (`.cpu()`, `.to('cpu')` on what it returns), or make the tensor"
        return (Advice(slug="copy-outside", text=f"{after} on the GPU from the start."),)
    if "unbacked binding ops" in text or "unbacked symint" in text:
        keep = "Keep sizes and numbers that depend on data out of this function: `torch.where` and masks instead of `nonzero`,"
        return (Advice(slug="no-data-shapes", text=f"{keep} indexing by a mask or `.item()`; or call the op after the compiled function."),)
    if "unsafe custom ops" in text:
        tag = (
            "The operator is tagged `torch.Tag.cudagraph_unsafe`. Remove the tag if it neither synchronises nor allocates outside of torch"
        )
        return (Advice(slug="unsafe-tag", text=f"{tag}; else call it outside of the compiled function."),)
    if re.search(r"\b(?:Conditional|Switch) ops", text):
        where = "`torch.cond` decides on the CPU. Where both sides are cheap, compute both and choose with `torch.where`."
        return (Advice(slug="where-for-cond", text=where),)
    if "dynamic shape ops" in text:
        return (
            Advice(
                slug="fixed-sizes", text="Pad inputs to a few fixed sizes and compile with `dynamic=False`: each size gets a CUDA graph."
            ),
        )
    return ()


def skip_advice(reason: str) -> tuple[Advice, ...]:
    """The change for a graph that got no CUDA graph at all."""
    if "re-recording" in reason:
        return rerecord_advice(reason)
    if "torch.cond" in reason or "control flow" in reason:
        return partition_advice(("Conditional ops",), ())
    if "cpu device" in reason or "multiple devices" in reason:
        return partition_advice(("cpu ops",), ())
    if "mutated inputs" in reason:
        text = (
            "A CUDA graph must not write its inputs. Return the new value and assign it outside of the compiled function, or make the "
            "tensor one with a fixed address: a buffer or parameter of the module, or `torch._dynamo.mark_static_address(tensor)` before "
            "the first call."
        )
        return (Advice(slug="no-write-into-inputs", text=text, options=("torch._dynamo.mark_static_address",)),)
    if "dynamic" in reason:
        return partition_advice(("dynamic shape ops",), ())
    return ()


def rerecord_advice(reason: str) -> tuple[Advice, ...]:
    """The change for a CUDA graph that is recorded again and again."""
    if "another size" in reason:
        text = f"Pad to a few fixed sizes: each new size is recorded. Or exclude graphs with changing sizes: `{_SKIP_SIZES} = True`."
        return (Advice(slug="few-sizes", text=text, options=(_SKIP_SIZES,)),)
    if "static input data pointer" in reason:
        text = "Keep one tensor for this input and write new values into it with `copy_`: torch assumed that its address is fixed"
        return (Advice(slug="one-address", text=f"{text} (a parameter, a buffer, or marked with `mark_static_address`)."),)
    if "managed tensor data pointer" in reason:
        text = "This input is an output of another CUDA graph in some calls and another tensor in others. Always pass the output itself,"
        return (Advice(slug="one-source", text=f"{text} or always a clone of it."),)
    if "follows another graph" in reason:
        text = "Call the compiled functions in the same order in each step, and mark where a step begins"
        call = "torch.compiler.cudagraph_mark_step_begin()"
        return (Advice(slug="one-order", text=f"{text}: `{call}`.", options=("torch.compiler.cudagraph_mark_step_begin",)),)
    return ()
