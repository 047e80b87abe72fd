"""Failed guards on a tensor: size, stride, rank, dtype, device, requires_grad, dispatch keys, type (messages of `guards.cpp`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dynadiag.passes.guard_parts import FailedGuard, Parts, type_name

_TENSOR = re.compile(r"tensor '(?P<name>.+)' (?P<rest>(?:size|stride|rank|dtype|requires_grad|dispatch key set|.*device).*)$", re.DOTALL)


def tensor(parts: Parts) -> FailedGuard | None:
    """A property of a tensor that is not what was compiled for, or None."""
    match = _TENSOR.match(parts.body)
    if match is None:
        return None
    for pattern, build in _TENSOR_PROPERTIES:
        if found := pattern.match(match["rest"]):
            return build(match["name"], found.groupdict())
    return None


def _indexed(kind: str) -> Callable[[str, Mapping[str, str]], FailedGuard]:
    return lambda name, found: FailedGuard(kind, f"{name}.{kind}()[{found['index']}]", found["old"], found["new"], "", property=kind)


def _plain(kind: str, attribute: str) -> Callable[[str, Mapping[str, str]], FailedGuard]:
    return lambda name, found: FailedGuard(kind, f"{name}.{attribute}", found["old"].strip(), found["new"].strip(), "", property=kind)


def _dtype(name: str, found: Mapping[str, str]) -> FailedGuard:
    old, new = (_DTYPES.get(found[side].strip(), found[side].strip()) for side in ("old", "new"))
    return FailedGuard("dtype", f"{name}.dtype", old, new, "", property="dtype")


def _requires_grad(name: str, found: Mapping[str, str]) -> FailedGuard:
    before = found["old"] == "1"
    return FailedGuard("requires_grad", f"{name}.requires_grad", str(before), str(not before), "", property="requires_grad")


def _dispatch_keys(name: str, found: Mapping[str, str]) -> FailedGuard:
    """Only the keys that differ; a device shows as a backend key, inference mode as missing autograd keys."""
    old, new = (tuple(key.strip() for key in found[side].split(",") if key.strip()) for side in ("old", "new"))
    devices = [next((key for key in keys if key in _DEVICE_KEYS), None) for keys in (old, new)]
    if None not in devices and devices[0] != devices[1]:
        return FailedGuard("device", f"{name}.device", str(devices[0]).lower(), str(devices[1]).lower(), "", property="device")
    lost, gained = [key for key in old if key not in new], [key for key in new if key not in old]
    return FailedGuard(
        "dispatch_keys", name, ", ".join(lost) or "none of these", ", ".join(gained) or "none of these", "", property="dispatch keys"
    )


_DEVICE_KEYS = frozenset({"CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "PrivateUse1", "Meta"})


# The messages have the names of c10 (`c10/core/ScalarType.h`, 2.6 to 2.15); other names are torch's own, but for capitals.
_DTYPES = {
    "Byte": "uint8", "Char": "int8", "Short": "int16", "Int": "int32", "Long": "int64", "Half": "float16", "Float": "float32",
    "Double": "float64", "ComplexHalf": "complex32", "ComplexFloat": "complex64", "ComplexDouble": "complex128", "Bool": "bool",
    "BFloat16": "bfloat16",
}  # fmt: skip
_OLD_NEW = r"expected (?P<old>[^,]+?), actual (?P<new>[^,]+?)(?:\. Guard failed on a parameter.*)?$"


_TENSOR_PROPERTIES: tuple[tuple[re.Pattern[str], Callable[[str, Mapping[str, str]], FailedGuard]], ...] = (
    (re.compile(rf"size mismatch at index (?P<index>\d+)\. {_OLD_NEW}", re.DOTALL), _indexed("size")),
    (re.compile(rf"stride mismatch at index (?P<index>\d+)\. {_OLD_NEW}", re.DOTALL), _indexed("stride")),
    (re.compile(rf"rank mismatch\. {_OLD_NEW}", re.DOTALL), _plain("rank", "dim()")),
    (re.compile(rf"dtype mismatch\. {_OLD_NEW}", re.DOTALL), _dtype),
    (re.compile(r"requires_grad mismatch\. expected requires_grad=(?P<old>[01])"), _requires_grad),
    (
        re.compile(r"dispatch key set mismatch\. expected DispatchKeySet\((?P<old>[^)]*)\), actual DispatchKeySet\((?P<new>[^)]*)\)"),
        _dispatch_keys,
    ),
    (
        re.compile(
            r"Tensor device index mismatch\. Expected device index to be (?P<old>[^,]+), got (?P<new>.+?)(?:\. Guard failed.*)?$", re.DOTALL
        ),
        _plain("device", "device.index"),
    ),
)


_TENSOR_TYPE = re.compile(
    r"expected type of '(?P<name>.+?)' to be (?P<old>a tensor type|<class '[^']+'>).*? but found (?P<new><class '.+'>)"
)


def tensor_type(parts: Parts) -> FailedGuard | None:
    """Something of another type where a tensor was expected, or None."""
    match = _TENSOR_TYPE.match(parts.body)
    return (
        None if match is None else FailedGuard("type", match["name"], type_name(match["old"]), type_name(match["new"]), "", property="type")
    )
