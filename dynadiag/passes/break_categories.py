"""What kind of thing broke the graph: one category a break, from torch's own break type and, where that says too little, its context.

The rules look at the break type and not at the id, because old logs have no ids; types were read from
`torch/_dynamo/graph_break_registry.json`
of torch 2.11 (421 ids) and 2.15 (592 ids).
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from dynadiag.facts.user_frames import is_own_file, normal_path
from dynadiag.model.run import BreakEvent, Run

CONTROL_FLOW: Final = "data-dependent control flow"
SCALAR_READ: Final = "scalar read"
DYNAMIC_SHAPE: Final = "dynamic shape operator"
SIDE_EFFECT: Final = "side effect"
LIBRARY_CALL: Final = "unsupported builtin or library call"
CONTEXT_MANAGER: Final = "context manager"
AUTOGRAD: Final = "autograd or optimizer call"
USER_INSERTED: Final = "user-inserted"
LIBRARY_INSERTED: Final = "inserted by a library"
DISABLED: Final = "disabled function"
EXCEPTION: Final = "exception"
TENSOR_MUTATION: Final = "tensor mutation"
HIGHER_ORDER: Final = "higher-order operator"
DISTRIBUTED: Final = "distributed call"
DDP: Final = "inside DistributedDataParallel"
RECOMPILE_LIMIT: Final = "recompile limit"
BACKEND: Final = "back end"
OPERATOR: Final = "untraceable operator"
PYTHON: Final = "unsupported Python feature"
TORCH_BUG: Final = "torch bug"
OTHER: Final = "other"

_TYPES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (category, re.compile(pattern, re.IGNORECASE))
    for category, pattern in (
        (
            CONTROL_FLOW,
            r"data-dependent (?:branching|jump|assertion|expression)|assertion failed on symbolic shapes|guard_scalar branch|__bool__$"
            r"|truth value|^generic_jump tensorvariable|dynamic control flow is not supported",
        ),
        (
            SCALAR_READ,
            r"tensor\.(?:item|tolist)(?:\(\)|$)|^data dependent operator|with non-scalar tensor|unsupported index\(tensor\)|slicing "
            r"with tensor",
        ),
        (DYNAMIC_SHAPE, r"dynamic shape operator|data-dependent output shape|unbacked symint|data-dependent .*torch\.size"),
        (
            USER_INSERTED,
            r"_dynamo\.graph_break\(\)|skip function graph_break |comptimecontext graph break|_dynamo\.skip_frame\(\)|step_unsupported"
            r"|forced graph break",
        ),
        (DISABLED, r"(?:compiler|_dynamo)\.disable\(\)"),
        (RECOMPILE_LIMIT, r"(?:recompile|cache) limit exceeded"),
        (BACKEND, r"backend compiler exception"),
        (
            HIGHER_ORDER,
            r"\bhop\b|higher.?order|torch\.(?:cond|while_loop|scan|map|associative_scan|switch)\b|invoke_subgraph|flex_|hints_wrapper"
            r"|strict_mode:|wrap_with_",
        ),
        (SIDE_EFFECT, r"logging\.logger|debugging function|side effect|store_global|\bcontextvar\b|call to a time function"),
        (
            AUTOGRAD,
            r"backward\(|autograd|requires_grad|grad_fn|optimizer|_imperativeengine|backward_state|hook|retain_grad|tensor and its "
            r"gradient|"
            r"functorch|functorh|custom [jv][vj]p",
        ),
        (
            CONTEXT_MANAGER,
            r"context.?manager|contextlib|genericcontextwrapping|escaped from compiled region|withexit|use_mem_pool"
            r"|use_deterministic_algorithms|is_inference",
        ),
        (
            TENSOR_MUTATION,
            r"mutate tensor data|tensor\.(?:set_|resize|sparse_resize|uniform_|random_|share_memory_)|setattr\(\) on .*\.data|inplace op "
            r"on input|"
            r"set tensor attribute|out=",
        ),
        (DISTRIBUTED, r"async_op|p2p|isend|distributed|fsdp"),
        (EXCEPTION, r"observed exception|raise exception|from user code|exception (?:object|with|constructor)|non-exception"),
        (OPERATOR, r"fake tensor|fake impl|pt2-compliant|fx node|fake_fn"),
        (
            PYTHON,
            r"bytecode|generator\b(?! method)|super\b|comprehension|metaclass|call_intrinsic|build_|__\w+__|nested function|unpack"
            r"|cell\b|yield|send with|"
            r"\b(?:tp|nb|sq|mp)_|missing_mp|(?:repr|issubclass|isinstance|hasattr|getattr|setattr|iter|id|bytes|list)\(|dict\b|weakref"
            r"|deque|namedtuple|"
            r"dataclass|reconstruct|hash\b|richcompare|local variable|deleted variable|attribute for|non-const|bytearray|namespace",
        ),
        (
            LIBRARY_CALL,
            r"builtin|marked as skipped|function call|wrap RNN|"
            r"method|numpy|ndarray|c/c\+\+|copy\.deepcopy|itertools|\bcall\b|functions? not "
            r"implemented",
        ),
    )
)
# Calls that do something outside the program's values: what torch calls them differs by version, what they are does not.
_SIDE_EFFECT_CALL = re.compile(
    r"builtin:? (?:print|open|input|breakpoint)\b|_warnings?\b.*\bwarn|module: warnings|qualname: (?:print|Logger|log\b|tqdm|sleep)"
    r"|module: (?:logging|time)\b|"
    r"TextIOWrapper|tqdm|SummaryWriter|wandb"
)
_AN_EXAMPLE = "(e.g. _warnings.warn)"  # in torch 2.11's text about every builtin that it cannot trace
_OPTIMIZER = re.compile(r"/torch/(?:optim|autograd)/|qualname: Optimizer\b|module: torch\.(?:optim|autograd)")
_DISTRIBUTED = re.compile(r"/torch/(?:distributed|nn/parallel)/")
_DDP = re.compile(r"/torch/nn/parallel/distributed\.py$")
_HELPERS = re.compile(r"/torch/_dynamo/polyfills/|/contextlib\.py$")
_WORK = re.compile(r"UserDefinedObjectVariable\(Work\)")
_TORCH_BUG = re.compile(r"likely to be a Dynamo bug")


def category(event: BreakEvent, run: Run) -> str:
    """The category of a break: torch's type decides; library calls are looked at again, since "function marked as skipped" says nothing."""
    kind = next((name for name, pattern in _TYPES if pattern.search(event.gb_type)), None)
    if kind == USER_INSERTED and event.torch_frame is not None and not is_own_file(event.torch_frame.file, run):
        return AUTOGRAD if _in_optimizer(event) else LIBRARY_INSERTED
    if kind in (LIBRARY_CALL, DISABLED, None):
        return _by_context(event, run) or kind or (TORCH_BUG if any(_TORCH_BUG.search(hint) for hint in event.hints) else OTHER)
    return kind or OTHER


def _by_context(event: BreakEvent, run: Run) -> str | None:
    # Torch up to 2.6 had no context: its one line says it.
    context = f"{event.context or event.gb_type} {(event.explanation or '').replace(_AN_EXAMPLE, '')}"
    if _SIDE_EFFECT_CALL.search(context):
        return SIDE_EFFECT
    if _OPTIMIZER.search(normal_path(context)) or _in_optimizer(event):
        return AUTOGRAD
    return DISTRIBUTED if _WORK.search(context) else _in_distributed(event, run)


def _in_distributed(event: BreakEvent, run: Run) -> str | None:
    """Whether the code that broke is that of torch.distributed or of DistributedDataParallel, and not of a model that DDP calls."""
    inside = itertools.takewhile(lambda place: not is_own_file(place.file, run), reversed(event.stack))
    innermost = next((path for place in inside if not _HELPERS.search(path := normal_path(place.file))), "")
    if _DDP.search(innermost):
        return DDP
    return DISTRIBUTED if _DISTRIBUTED.search(innermost) else None


def _in_optimizer(event: BreakEvent) -> bool:
    return event.torch_frame is not None and bool(_OPTIMIZER.search(normal_path(event.torch_frame.file)))
