"""What of a message tells two failures apart: all but free-standing numbers, addresses, paths, and names that the compiler makes up."""

from __future__ import annotations

import re

from dynadiag.render.sanitise import clean_block

MESSAGE_LIMIT = 4000
_READ_LIMIT = 1 << 20
_COMPILER_LIMIT = 1000

# A number belongs to a name where a letter, a digit or an underscore stands beside it: `log10`, `float8_e4m3fn`, `conv1d` stay. What
# the compiler numbers anew for each graph goes with its number: variables, kernels and buffers of inductor
# (torch/_inductor/codegen/common.py, triton.py, cpp.py), inputs of AOTAutograd, sizes (torch/fx/experimental/symbolic_shapes.py),
# constants and bodies of higher order operators, functions of Dynamo; seen on 2.11 to 2.15.
_MADE_UP = (
    r"(?<![\w.])(?<!::)(?:(?:in_out|in|out|mut)_ptr|buf|arg|tmp|op(?!_)|primals|tangents|fwd_rng_state|bwd_rng_state|subgraph|partition|kernel|_tensor_constant"
    r"|_param_constant|_frozen_param|___stack|graph_out|zuf|ks|s|y|z|r|(?<!%)u(?!(?:8|16|32|64)\b)|x(?!86|64\b|32\b))_?\d+(?:_\d+)*"
)
_ACCIDENTAL = (
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "0xN"),
    (re.compile(r"(?<![\w)\]])(?:[A-Za-z]:)?(?:/[\w.+@~-]+){2,}/?"), "PATH"),
    (re.compile(r"\b__(compiled_fn|resume_at)_\w+"), r"__\1"),
    (re.compile(r"\b(?:triton_[a-z]+|cpp|pallas_[a-z]+|halide)_fused_\w*|\btriton_[a-z]{2,3}_fused\b"), "KERNEL"),
    (re.compile(r"\b[0-9a-f]{16,}\b|\bc[a-z2-7]{40,}\b"), "HASH"),
    (re.compile(rf"{_MADE_UP}\b"), "VARIABLE"),
    (re.compile(r"(?<=[\[(,])(\s*)%\w+"), r"\1%NODE"),
    # Nodes of one operator are numbered (`add`, `add_1`); what is qualified (`mylib.op_1`, `mylib::op_1`) is no node.
    (re.compile(r"(?<![\w.])(?<!::)(%?[A-Za-z_]\w*?)(?:_\d+)+\b(?!::|\.(?:default|out|[A-Z])\w*)"), r"\1"),
    (re.compile(r"(?<!\w)[-+]?\d+(?:\.\d+)*(?:e[-+]?\d+)?(?:[fFlLuU]{1,3}|[kKMGT]?i?B|[mun]?s|(?:x\d+)+)?(?!\w)"), "N"),
    (re.compile(r"N(?:\s*[,x*]\s*N)+,?"), "N"),
)


def without_accidents(text: str) -> str:
    """The text without numbers, addresses, paths and made-up names, nor colours and other control characters."""
    text = clean_block(text, limit=_READ_LIMIT, lines=_READ_LIMIT)
    for pattern, instead in _ACCIDENTAL:
        text = pattern.sub(instead, text)
    return text


def normalised(message: str) -> str:
    """The message without what changes while a graph shrinks.

    Of a compiler's output only the lines that say "error:" stay; of a message of Triton that shows the kernel only what stands behind it
    (triton/compiler/errors.py, 3.6), of one that prints the graph only what stands before it.
    """
    lines = [line.rstrip() for line in message.strip().splitlines()]
    errors = [re.sub(r"^\s*\S*?:\d+:\d+:\s*", "", line).strip() for line in lines if re.search(r"\b(?:fatal )?error:", line)]
    if errors:
        return without_accidents("\n".join(sorted(set(errors))))[:_COMPILER_LIMIT]
    return without_accidents("\n".join(_before_details(_behind_kernel(lines))))[:MESSAGE_LIMIT]


_DETAILS = ("While executing", "Original traceback", "args[", "from user code", "Set TORCH", "graph():", "Command:", "Use tlparse")


def _before_details(lines: list[str]) -> list[str]:
    kept = []
    for line in map(str.strip, lines):
        if line.startswith(_DETAILS):
            break
        if line:
            kept.append(line)
    return kept


def _behind_kernel(lines: list[str]) -> list[str]:
    if lines and re.match(r"at \d+:\d+:", lines[0]):
        carets = [number for number, line in enumerate(lines) if line.strip() == "^"]
        behind = lines[carets[-1] + 1 :] if carets else []
        return behind or lines
    return lines


def says(output: str, message: str) -> bool:
    """Whether the output of a process holds each line of a normalised message, as whole words."""
    text = without_accidents(output)
    return all(_holds(text, line) for line in message.splitlines())


def _holds(text: str, line: str) -> bool:
    before, behind = (r"(?<!\w)" if re.match(r"\w", line) else ""), (r"(?!\w)" if re.search(r"\w$", line) else "")
    return re.search(f"{before}{re.escape(line)}{behind}", text) is not None
