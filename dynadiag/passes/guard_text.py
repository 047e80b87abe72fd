"""One recompile reason taken apart: which guard of which cache entry failed, what it expected and what it saw.

Written from the texts that torch 2.11 and 2.15 print (`get_guard_fail_reason` in `torch/_dynamo/guards.py`; the messages of tensor, global
state and dimension guards come from `torch/csrc/dynamo/guards.cpp`). A text in no such shape has kind `unknown` and is shown verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

from dynadiag.facts.guard_sources import named_in, readable
from dynadiag.model.location import Location
from dynadiag.passes.guard_parts import FailedGuard, Parts, first_outside_quotes, split, type_name

# Failed guards on a tensor: size, stride, rank, dtype, device, requires_grad, dispatch keys, type (messages of `guards.cpp`).
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


def _property_reader(kind: str, attribute: str) -> Callable[[str, Mapping[str, str]], FailedGuard]:
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
    (re.compile(rf"rank mismatch\. {_OLD_NEW}", re.DOTALL), _property_reader("rank", "dim()")),
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
        _property_reader("device", "device.index"),
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


_ENTRY = re.compile(r"^(?P<entry>!?\d+(?:/\d+){1,2}(?:_\d+)?): (?P<rest>.*)$", re.DOTALL)
_STACK_TITLE = "\nUser stack trace:\n"
_STACK_LINE = re.compile(r'^ {2}File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.+)$')
_COMMENT_PLACE = re.compile(r"# \(?(?P<file>[^#\n]+?):(?P<line>\d+) in (?P<function>[^\s)]+)")
_TEXT_LIMIT = 8_000
_COMMENT_LIMIT = 3_000  # torch leaves the source line out when the comment gets longer than 1,024 characters


@lru_cache(maxsize=1 << 15)  # three passes ask for the newest reasons of all recompiles, of which a run keeps 25,000 (`trace.room`)
def parse_reason(text: str) -> FailedGuard:
    """The guard that a reason names; never raises, whatever the text."""
    head, _, tail = text[:_TEXT_LIMIT].partition(_STACK_TITLE)
    match = _ENTRY.match(head)
    body = (match["rest"] if match else head).strip()
    parts = split(body)
    stack = _stack(tail)
    failed = next((found for shape in _SHAPES if (found := shape(parts)) is not None), None) or FailedGuard("unknown", "", None, None, body)
    return FailedGuard(
        kind=failed.kind,
        source=_closure_name(readable(failed.source), parts.hint),
        expected=failed.expected,
        actual=failed.actual,
        text=body,
        entry=match["entry"] if match else None,
        hint=parts.hint,
        raw_source=failed.raw_source or failed.source,
        stack=stack,
        origin=stack[-1] if stack else _origin(parts.comment),
        property=failed.property,
    )


def failed_guards(text: str) -> tuple[FailedGuard, ...]:
    """The same as one guard a thing: the global state's guard names all settings that differ."""
    guard = parse_reason(text)
    settings = guard.property.split() if guard.kind == "global_state" else ()
    return tuple(replace(guard, source=name, property=name) for name in settings) or (guard,)


_CLOSURE_HINT = re.compile(r'guard on "(?P<name>\w+)"')
_CELL = re.compile(r"(?P<length>len\((?=.*\)$))?(?P<function>.+)\.__closure__\[\d+\]\.cell_contents(?P<rest>.*)$")


def _closure_name(source: str, hint: str | None) -> str:
    """`k (closure of f)`, or `len(k) (closure of f)`, for a cell that torch's hint names."""
    named = _CLOSURE_HINT.match(hint or "")
    cell = _CELL.match(source)
    return f"{cell['length'] or ''}{named['name']}{cell['rest']} (closure of {cell['function']})" if named and cell else source


@lru_cache(maxsize=8192)
def parse_guard_code(code: str) -> FailedGuard | None:
    """What one guard of a guard dump requires (`mode == 'b'`), in the same shape as a failed one; None if its form is not known."""
    parts = split(code[:_TEXT_LIMIT].strip())
    found = next((made for shape in _EXPRESSIONS if (made := shape(parts)) is not None), None)
    return None if found is None else replace(found, source=readable(found.source), raw_source=found.source)


def _stack(text: str) -> tuple[Location, ...]:
    locations: list[Location] = []
    for line in text.splitlines():
        match = _STACK_LINE.match(line)
        if match:
            locations.append(Location(match["file"], _number(match["line"]), match["function"]))
        elif locations and line.startswith("    "):
            locations[-1] = replace(locations[-1], code=line.strip())
    return tuple(locations)


# torch joins the places of both ends of a range with " and ", each with its line before it. That of an end that it drew itself, since it
# makes sizes 0 and 1 constants, is called "first use of this value" (`ShapeEnv.create_symbol`, 2.11 and 2.15).
_NOT_ASKED_FOR = " (user code shown is first use"


def _origin(comment: str) -> Location | None:
    """The last line that the comment gives for the guard, one that asked for it before one that did not."""
    text = comment[:_COMMENT_LIMIT]
    found: list[tuple[bool, Location]] = []
    ended = 0
    for match in _COMMENT_PLACE.finditer(text):
        between = text[ended : match.start()]
        code = between.partition(") and ")[2] if between.startswith(" (") else between.removeprefix("# ").removeprefix(" and ")
        ended = match.end()
        place = Location(match["file"].strip(), _number(match["line"]), match["function"], code.strip() or None)
        found.append((not text.startswith(_NOT_ASKED_FOR, ended), place))
    return max(reversed(found), key=lambda pair: pair[0])[1] if found else None


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) < 10 else None


_GLOBAL_STATE = re.compile(r"GLOBAL_STATE changed: (?P<names>[\w() ]*)")


def _global_state(parts: Parts) -> FailedGuard | None:
    match = _GLOBAL_STATE.match(parts.body)
    if match is None:
        return None
    names = match["names"].split()
    return FailedGuard("global_state", names[0] if names else "global state", None, None, "", property=" ".join(names))


def _mode_stack(parts: Parts) -> FailedGuard | None:
    if parts.code != "___check_torch_function_mode_stack()":
        return None
    return FailedGuard("function_mode", "torch function mode stack", None, None, "")


_BACKENDS = re.compile(r"Cached backend: (?P<old>.+?)\. New backend: (?P<new>.+?)\. If this")
_OBJECT_NUMBER = re.compile(r" \(id=0x[0-9a-f]+\)")


def _backend(parts: Parts) -> FailedGuard | None:
    if not parts.body.startswith("BACKEND_MATCH failure"):
        return None
    named = _BACKENDS.search(parts.body)
    sides = (None, None) if named is None else tuple(_OBJECT_NUMBER.sub("", named[side]) for side in ("old", "new"))
    return FailedGuard("backend", "backend", sides[0], sides[1], "")


_DUPLICATES = re.compile(r"Duplicate tensors? found(?: where not expected!)?:? ?(?P<names>.*)$")
_QUOTED_NAME = re.compile(r"[\"']((?:[^\"'\[\]]|\[[^\]]*\])+)[\"']")


def _duplicates(parts: Parts) -> FailedGuard | None:
    match = _DUPLICATES.match(parts.body)
    if match is None:
        return None
    names = _QUOTED_NAME.findall(match["names"])
    return FailedGuard(
        "aliasing", " and ".join(readable(name) for name in names) or "two tensors", "different tensors", "the same tensor", ""
    )


_MISSING = re.compile(r"getattr failed on source (?P<name>.+)$")


def _missing(parts: Parts) -> FailedGuard | None:
    match = _MISSING.match(parts.code)
    return None if match is None else FailedGuard("attribute", match["name"], "the attribute is present", "it is missing", "")


_HASATTR = re.compile(r"(?P<no>not )?hasattr\((?P<name>.+), '(?P<attr>\w+)'\)$")


def _hasattr(parts: Parts) -> FailedGuard | None:
    match = _HASATTR.match(parts.code)
    if match is None:
        return None
    sides = ("missing", "there") if match["no"] else ("there", "missing")
    return FailedGuard("attribute", f"{match['name']}.{match['attr']}", *sides, "")


_MARKING = re.compile(
    r"(?:hasattr\((?P<name>.+), '|\(\((?P<other>.+?)\.|\(\(getattr\((?P<third>.+?), ')?_(?:dynamo_\w+|has_dynamo_dim_marking)"
)


def _marking(parts: Parts) -> FailedGuard | None:
    """Marks of mark_dynamic or a similar mark: 2.15 prints a sentence that names no tensor, 2.11 the Python expression."""
    match = _MARKING.match(parts.code)
    if match is None:
        return None
    name = match["name"] or match["other"] or match["third"] or "a tensor"
    return FailedGuard("dim_marking", name, None, None, "", property="mark_dynamic or a similar mark")


_INVALIDATED = re.compile(r"Cache line invalidated because (?P<name>.+?) got deallocated")


def _invalidated(parts: Parts) -> FailedGuard | None:
    match = _INVALIDATED.match(parts.body)
    return None if match is None else FailedGuard("invalidated", match["name"], "alive", "freed", "")


def _unexpected(parts: Parts) -> FailedGuard | None:
    return FailedGuard("unexpected", "", None, None, "") if parts.body.startswith("Unexpected recompilation") else None


_TYPE_ID = re.compile(r"___check_type_id\((?P<name>.+), \d+\)(?:, type=(?P<type>.+))?$", re.DOTALL)


def _type_id(parts: Parts) -> FailedGuard | None:
    match = _TYPE_ID.match(parts.code)
    return None if match is None else FailedGuard("type", match["name"], type_name(match["type"] or "") or None, None, "", property="type")


_OBJECT_ID = re.compile(r"___check_obj_id\((?P<name>.+), \d+\)(?:, type=(?P<type>.+))?$", re.DOTALL)


def _object_id(parts: Parts) -> FailedGuard | None:
    match = _OBJECT_ID.match(parts.code)
    if match is None:
        return None
    code = match["name"].endswith(".__code__")
    name = match["name"].removesuffix(".__code__") if code else match["name"]
    return FailedGuard("function" if code else "identity", name, type_name(match["type"] or "") or None, None, "", property="identity")


_ACCESSOR = re.compile(r"CodeGuardAccessor: Not a function on (?P<name>.+?)(?:\.__code__)?$")


def _accessor(parts: Parts) -> FailedGuard | None:
    match = _ACCESSOR.match(parts.code)
    return None if match is None else FailedGuard("function", match["name"], "a Python function", "something else", "", property="identity")


_LENGTHS = r"set\.__len__|frozenset\.__len__|len|___tuple_iterator_len|___list_reverseiterator_len"
_LENGTH = re.compile(rf"(?:{_LENGTHS})\((?P<name>.+)\) (?:==|!=) (?P<old>\d+)$")
_NOT_EMPTY = re.compile(r"not (?P<name>[A-Za-z_][\w.\[\]'\"]*)$")


def _length(parts: Parts) -> FailedGuard | None:
    match = _LENGTH.match(parts.code)
    if match:  # `len(d) != 1` is how a dict's length guard prints that the length is not 1 any more
        return FailedGuard("length", f"len({match['name']})", match["old"], None, "", property="length")
    empty = _NOT_EMPTY.match(parts.code)
    return None if empty is None else FailedGuard("length", f"len({empty['name']})", "0", None, "", property="length")


_KEYS = re.compile(r"list\((?:dict\.keys\((?P<name>.+?)\)|(?P<other>.+?)\.keys\(\))\)(?:\[\d+\])? == (?P<old>.+)$")
_HELD = re.compile(r"(?P<no>not )?(?:___dict_contains\((?P<key>.+), (?P<name>[^,]+)\)|set\.__contains__\((?P<set>[^,]+), (?P<item>.+)\))$")


def _keys(parts: Parts) -> FailedGuard | None:
    match = _KEYS.match(parts.code)
    if match:
        return FailedGuard("keys", f"keys of {readable(match['name'] or match['other'])}", match["old"], None, "", property="keys")
    held = _HELD.match(parts.code)
    if held is None:
        return None
    old, new = ("missing", "there") if held["no"] else ("there", "missing")
    unknown = held["set"] and not held["no"]  # the same words for both on 2.11 (`SET_CONTAINS`, `_dynamo/guards.py`)
    return FailedGuard(
        "contains",
        f"{held['key'] or held['item']} in {readable(held['name'] or held['set'])}",
        None if unknown else old,
        None if unknown else new,
        "",
        property="keys",
    )


_NOTHING = re.compile(r"(?P<name>.+) is (?P<no>not )?None$")


def _nothing(parts: Parts) -> FailedGuard | None:
    match = _NOTHING.match(parts.code)
    if match is None:
        return None
    old, new = ("not None", "None") if match["no"] else ("None", "not None")
    return FailedGuard("none", match["name"], old, new, "", property="value")


_SAME_OBJECT = re.compile(r"(?P<one>[\w.\[\]'\"]+) is (?P<other>[\w.\[\]'\"]+)$")


def _same_object(parts: Parts) -> FailedGuard | None:
    match = _SAME_OBJECT.match(parts.code)
    if match is None:
        return None
    names = f"{readable(match['one'])} and {readable(match['other'])}"
    return FailedGuard("aliasing", names, "the same object", "different objects", "")


_ITSELF = re.compile(r"(?P<name>.+) == ___as_tensor\((?P=name)\)\.item\(\)$")
_IS_NAN = re.compile(r"(?P<no>not )?(?:math\.isnan|__math_isnan|__numpy_isnan)\((?P<name>[^()]+)\)$")


def _not_a_number(parts: Parts) -> FailedGuard | None:
    itself = _ITSELF.match(parts.code)
    if itself:  # torch 2.11 writes "is not NaN" as "equals itself"
        return FailedGuard("nan", itself["name"], "a number", "nan", "", property="value")
    match = _IS_NAN.match(parts.code.removeprefix("(").rpartition(" and ")[2].rstrip(")") + ")")
    if match is None:
        return None
    return FailedGuard("nan", match["name"], "a number" if match["no"] else "nan", "nan" if match["no"] else None, "", property="value")


_NAME_START = re.compile(r"[A-Za-z_]")
_ARITHMETIC = re.compile(r" [-+*/%<>]|//")
_QUOTED_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
_CONVERTED = re.compile(r"(?:int|float|str|complex)\((?P<name>.+)\)$")


def _equals(parts: Parts) -> FailedGuard | None:
    """`k == 2`: a constant that was compiled in. Anything with more than one comparison or arithmetic is a condition."""
    at = first_outside_quotes(parts.code, " == ")
    if at is None:
        return None
    name, value = parts.code[:at], parts.code[at + 4 :].strip()
    if not _NAME_START.match(name) or _ARITHMETIC.search(_QUOTED_TEXT.sub("", name)) or not _is_constant(value):
        return None
    wrapped = _CONVERTED.match(name)
    return FailedGuard("value", wrapped["name"] if wrapped else name, value, None, "", property="value")


_CALLED = re.compile(r"[A-Za-z_][\w.]*\.(?:size|stride|storage_offset)\(|___\w+\(")
_VARIABLE = re.compile(r"(?!True$|False$|None$|inf$|nan$|Ellipsis$)[a-z_]\w*")


def _is_constant(value: str) -> bool:
    return not _CALLED.match(value) and not _VARIABLE.fullmatch(value)


_ANY_COMPARISON = re.compile(r"[<>=!]=?")
_CONDITION_START = re.compile(r"[\w(\-.\[\]]")
_COMPARISON = re.compile(r" (?:<|>|<=|>=|==|!=) |^(?:Eq|Ne|Not)\(")


def _condition(parts: Parts) -> FailedGuard | None:
    """A symbolic shape guard: an expression over sizes and numbers that the compiled code took for granted."""
    if not _ANY_COMPARISON.search(parts.code) or parts.code.startswith(("___check", "GLOBAL")) or not named_in(parts.code):
        return None
    if not _CONDITION_START.match(parts.code) or not _COMPARISON.search(parts.code):
        return None
    kind = (
        "zero_one" if "0/1 specialization" in parts.comment and " and " not in parts.comment.rpartition("decorators.")[2] else "condition"
    )
    if "duck sizing" in parts.comment:
        kind = "duck_size"
    return FailedGuard(kind, readable(parts.code), "true", "false", "", raw_source=parts.code)


_EXPRESSIONS: tuple[Callable[[Parts], FailedGuard | None], ...] = (
    _type_id,
    _object_id,
    _length,
    _keys,
    _hasattr,
    _nothing,
    _same_object,
    _not_a_number,
    _equals,
)
_WHOLE_NUMBER = re.compile(r"(?P<name>[A-Za-z][\w.\[\]'\"]*) == (?P<old>-?\d+)")


def _whole_number(parts: Parts) -> FailedGuard | None:
    """`self.n == 3`, the commonest, which `_equals` reads as well: no other shape begins so."""
    match = _WHOLE_NUMBER.fullmatch(parts.code)
    return None if match is None else FailedGuard("value", match["name"], match["old"], None, "", property="value")


_SHAPES: tuple[Callable[[Parts], FailedGuard | None], ...] = (
    _whole_number,
    tensor,
    tensor_type,
    _global_state,
    _mode_stack,
    _backend,
    _duplicates,
    _missing,
    _marking,
    _invalidated,
    _unexpected,
    _accessor,
    *_EXPRESSIONS,
    _condition,
)
