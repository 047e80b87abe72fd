"""What each component of torch's cache keys is called in a program (torch/_inductor/codecache.py and autograd_cache.py, 2.11 to 2.15)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dynadiag.diff.result import SourceLine
from dynadiag.model.run import Process
from dynadiag.start.result import Cause, CauseKind
from dynadiag.start.setting_lines import SettingLines
from dynadiag.trace.cache_keys import KeyDifference

_LONGEST_VALUE = 120
_MOST_OPTIONS = 6


class _Setting(NamedTuple):
    """Words for a component, the functions and attributes that set it, and the variables; `fields` are words for each of several values."""

    words: str
    names: tuple[str, ...]
    variables: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


_SETTINGS: Mapping[str, _Setting] = {
    "deterministic_algorithms_settings": _Setting(
        "deterministic algorithms",
        ("use_deterministic_algorithms", "set_deterministic_debug_mode", "fill_uninitialized_memory"),
        fields=("deterministic algorithms", "deterministic algorithms warn only", "deterministic algorithms fill uninitialized memory"),
    ),
    "deterministic_algorithms": _Setting("deterministic algorithms", ("use_deterministic_algorithms", "set_deterministic_debug_mode")),
    "cuda_matmul_settings": _Setting(
        "matmul precision",
        (
            "set_float32_matmul_precision",
            "allow_tf32",
            "fp32_precision",
            "allow_fp16_reduced_precision_reduction",
            "allow_bf16_reduced_precision_reduction",
        ),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",),
        ("float32 matmul precision", "reduced precision of float16 matmul", "reduced precision of bfloat16 matmul"),
    ),
    "cpp_runtime_thread_count": _Setting("number of threads", ("set_num_threads",), ("OMP_NUM_THREADS", "MKL_NUM_THREADS")),
    "default_dtype": _Setting("default dtype", ("set_default_dtype", "set_default_tensor_type")),
    "grad_enabled": _Setting("grad mode", ("no_grad", "set_grad_enabled", "enable_grad", "inference_mode")),
    "compile_on_one_rank": _Setting("compile on one rank", ("compile_on_one_rank",)),
    "saved_tensors_hooks_fx_wrap_cache_hashes": _Setting("hooks for saved tensors", ("saved_tensors_hooks",)),
    "sac_context_fn_hashes": _Setting("the `cache_hash` of a checkpoint's context_fn", ("cache_hash",)),
    "default_cuda_device_index": _Setting("the current device", ("set_device",), ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK")),
}
_AUTOCAST = re.compile(r"autocast_state\[(\w+)\]$")
_OPTION = re.compile(r"(inductor_config|inductor_config_comms|autograd_config|custom_backend_codegen_configs)\[([\w.]+)\]$")
_OPTION_AREAS = {
    "inductor_config": "torch._inductor.config.",
    "inductor_config_comms": "torch._inductor.config.",
    "autograd_config": "torch._functorch.config.",
}
_CUSTOM_PASS = re.compile(r"(_?\w*custom\w*pass\w*|_pre_fusion_custom_pass|_post_fusion_custom_pass|_custom_partitioner_fn)(?:\[\d+\])?$")
_TRITON = frozenset({"user_defined_triton_source", "triton_kernel_source_codes"})
_VERSIONS = {"torch_version": "the build of torch", "system_info[version]": "the version of Triton", "system_info[device]": "the device"}
# What follows from something else that is named, and is shown only where nothing else is.
_FOLLOWS = re.compile(
    r"(gm|fx_kwargs|example_inputs|aot_config|act_input_paths|inputs_to_check|system_info\[hash\]|deterministic_algorithms$)"
)
_FOLLOWS_FROM_DETERMINISTIC = "inductor_config[deterministic]"


class Environment(NamedTuple):
    """The variables that differ between the first processes of two runs."""

    changed: Mapping[str, tuple[str | None, str | None]]

    def named(self, names: Iterable[str]) -> tuple[str, str | None, str | None] | None:
        """The first of these variables that differs, with its values."""
        return next(((name, *self.changed[name]) for name in names if name in self.changed), None)

    def for_option(self, option: str) -> tuple[str, str | None, str | None] | None:
        """The variable by which torch reads this option: TORCHINDUCTOR_ and its name, as most are called."""
        words = option.upper().replace(".", "_")
        last = option.rpartition(".")[2].upper()
        return self.named((f"TORCHINDUCTOR_{words}", f"TORCHINDUCTOR_{last}", f"TORCH_{words}", f"TORCHDYNAMO_{last}"))


_OWN_VARIABLES = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_TRACE", "TORCH_LOGS_OUT", "RANK", "LOCAL_RANK"})


def environment_of(old: Process | None, new: Process | None) -> Environment:
    """What differs between the recorded variables of two processes."""
    if old is None or new is None or not old.environment or not new.environment:
        return Environment({})
    names = (old.environment.keys() | new.environment.keys()) - _OWN_VARIABLES
    pairs = {name: (old.environment.get(name), new.environment.get(name)) for name in sorted(names)}
    return Environment({name: pair for name, pair in pairs.items() if pair[0] != pair[1]})


def key_causes(differences: Sequence[KeyDifference], environment: Environment, lines: SettingLines) -> list[Cause]:
    """Settings, options, versions and passes that differ; graphs and inputs, which the records of both runs show better, are left out."""
    by_name = {difference.name: difference for difference in differences}
    versions = [_version(by_name[name], words) for name, words in _VERSIONS.items() if name in by_name]
    if any(cause.parts == ("torch_version",) for cause in versions):
        return versions
    found = [*versions]
    for difference in differences:
        if difference.name == _FOLLOWS_FROM_DETERMINISTIC and "deterministic_algorithms_settings" in by_name:
            continue
        if difference.name == "deterministic_algorithms" and "deterministic_algorithms_settings" in by_name:
            continue
        if difference.name not in _VERSIONS:
            found += _cause(difference, environment, lines)
    options = [cause for cause in found if cause.kind == "option"]
    return [cause for cause in found if cause.kind != "option" or options.index(cause) < _MOST_OPTIONS]


def leftovers(differences: Sequence[KeyDifference]) -> list[Cause]:
    """What no other cause explains, by torch's own names."""
    return [
        Cause(
            kind="unknown",
            what=f"torch's key component `{item.name}`",
            old=shortened(item.old),
            new=shortened(item.new),
            parts=(item.name,),
        )
        for item in differences[:_MOST_OPTIONS]
    ]


def _version(difference: KeyDifference, words: str) -> Cause:
    shown = difference.name == "system_info[device]"
    return Cause(
        kind="version",
        what=words,
        old=shortened(difference.old) if shown else None,
        new=shortened(difference.new) if shown else None,
        parts=(difference.name,),
    )


def _cause(difference: KeyDifference, environment: Environment, lines: SettingLines) -> Iterator[Cause]:
    name = difference.name
    if (setting := _SETTINGS.get(name)) is not None:
        for words, part in _by_field(difference, setting.words, setting.fields):
            yield _set_cause("setting", words, part, environment.named(setting.variables), lines.line_of(setting.names))
    elif (found := _AUTOCAST.match(name)) is not None:
        fields = (f"autocast on {found[1]}", f"autocast dtype on {found[1]}")
        for words, part in _by_field(difference, fields[0], fields):
            yield _set_cause("setting", words, part, None, lines.line_of(("autocast",)))
    elif (found := _OPTION.match(name)) is not None:
        option = found[2]
        place = lines.line_of_option(option)
        variable = environment.for_option(option) if place is None else None
        yield _set_cause("option", f"option {_OPTION_AREAS.get(found[1], '')}{option}", difference, variable, place)
    elif (found := _CUSTOM_PASS.match(name)) is not None:
        yield _set_cause("custom_pass", f"the uuid of {found[1]}", difference, None, lines.line_of((found[1],)))
    elif name.partition("[")[0] in _TRITON:
        yield Cause(kind="operators", what="the source of a Triton kernel of yours", parts=(name,))
    elif name == "cache_key_tag":
        yield _set_cause("option", "option torch.compiler.config.cache_key_tag", difference, None, lines.line_of(("cache_key_tag",)))
    elif not _FOLLOWS.match(name):
        yield from leftovers((difference,))


# How torch.set_float32_matmul_precision sets torch.backends.cuda.matmul.fp32_precision (2.11 to 2.15): 'medium' as 'high'.
_PRECISIONS = {"'ieee'": "'highest' (ieee)", "'tf32'": "'high' or 'medium' (tf32)", "'none'": "torch's default"}


def _by_field(difference: KeyDifference, words: str, fields: Sequence[str]) -> list[tuple[str, KeyDifference]]:
    """The values that differ within a component of several; the component where its text does not show them."""
    values = [_FIELDS.findall(text or "") for text in (difference.old, difference.new)]
    if not fields or any(len(found) != len(fields) for found in values):
        return [(words, difference)]
    changed = [
        (name, difference._replace(old=_PRECISIONS.get(old, old), new=_PRECISIONS.get(new, new)))
        for name, old, new in zip(fields, *values, strict=True)
        if old != new
    ]
    return changed or [(words, difference)]


_FIELDS = re.compile(r"'[^']*'|[\w.]+")


def _set_cause(
    kind: CauseKind,
    words: str,
    difference: KeyDifference,
    variable: tuple[str, str | None, str | None] | None,
    place: SourceLine | None,
) -> Cause:
    by = "" if variable is None else f", by the variable {variable[0]} ({variable[1] or 'not set'} -> {variable[2] or 'not set'})"
    return Cause(
        kind=kind,
        what=f"{words}{by}",
        old=shortened(difference.old),
        new=shortened(difference.new),
        place=place,
        parts=(difference.name,),
        cure=_SAME_SETTING,
    )


_SAME_SETTING = "Set it to the same value in each start, before the first compiled call"


def shortened(text: str | None) -> str | None:
    """A value on one line."""
    if text is None:
        return None
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_VALUE else f"{line[:_LONGEST_VALUE]}..."
