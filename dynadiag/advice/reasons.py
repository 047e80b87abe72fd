"""Types of graph breaks about which nothing is advised, with the reason: each goes on after "nothing is advised:"."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LEAF = "whether a tensor requires grad is decided before the graph runs, and this line decides it inside"
_SPARSE = "Dynamo does not trace sparse tensors"
_SIZE = "Dynamo does not trace changing a tensor's size or memory in place"
_HOOK = "Dynamo does not trace how hooks are registered or removed here"
_RANDOM = "the state of random generators is not part of a graph"
_TYPE = "the check runs code that Dynamo cannot trace"
_MODE = "compiled code is guarded on inference mode and cannot query it"
_NESTED = "Dynamo does not trace nested tensors of this layout"
_CONTEXT = "Dynamo does not trace this context manager"
_DISABLE = "the function is disabled inside the compiled one: the break is intended"
_SCRIPT = "Dynamo does not trace TorchScript modules"
_OBJECT = "the line changes an object that Dynamo does not track"

REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "GB0013": _HOOK,
        "GB0015": _SPARSE,
        "GB0016": _NESTED,
        "GB0041": "the body of a higher-order operator, or a hook, writes into a tensor, which a separate graph cannot do",
        "GB0045": _MODE,
        "GB0046": _MODE,
        "GB0055": "the argument is an object that cannot be put into a graph",
        "GB0083": "Dynamo does not trace modules with full backward hooks",
        "GB0088": "an exception comes up while Dynamo traces this line, and it ends the frame",
        "GB0092": "an object that Dynamo cannot rebuild is alive across the break",
        "GB0104": "compiled code does not have one autograd node per line",
        "GB0107": "torch draws different numbers in a graph than in place",
        "GB0108": "the gradient of a value inside a graph cannot be kept",
        "GB0117": _SIZE,
        "GB0125": _LEAF,
        "GB0126": _SIZE,
        "GB0127": _SIZE,
        "GB0128": _SIZE,
        "GB0142": _CONTEXT,
        "GB0175": _TYPE,
        "GB0194": _TYPE,
        "GB0206": _LEAF,
        "GB0225": _LEAF,
        "GB0228": "a parameter is created inside the compiled function, a new one at each call",
        "GB0233": _NESTED,
        "GB0262": _CONTEXT,
        "GB0264": "a parameter is created inside the compiled function, a new one at each call",
        "GB0277": _SPARSE,
        "GB0294": "torch does not support this NumPy function",
        "GB0357": _SCRIPT,
        "GB0363": _RANDOM,
        "GB0374": _SPARSE,
        "GB0376": _DISABLE,
        "GB0377": _DISABLE,
        "GB0467": _OBJECT,
        "GB0569": "the text of a tensor needs its values, which only exist after the graph has run",
        "GB2019": "a custom `autograd.Function` declares that it changes its input in place",
        "GB2736": _TYPE,
        "GB4197": _SIZE,
        "GB4695": _SCRIPT,
        "GB7324": _LEAF,
        "GB7650": _RANDOM,
        "GB8335": "the break is inside a generator, in the middle of which Dynamo cannot resume",
        "GB8977": "Dynamo does not trace class statements",
        "GB8985": _LEAF,
        "GB9522": _TYPE,
    }
)
