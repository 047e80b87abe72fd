"""Where a report belongs: PyTorch, a library, or nowhere, by the guilty layer, or by the frame that a finding is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynadiag.facts.user_frames import is_own_file, is_standard_library, is_torchs_file, normal_path
from dynadiag.model.location import Location
from dynadiag.model.report import Finding, Report
from dynadiag.trace.values import as_float, as_list

TORCH = "pytorch/pytorch"
OWN = "your own project"
_TRACKERS = {
    "transformers": "huggingface/transformers",
    "diffusers": "huggingface/diffusers",
    "accelerate": "huggingface/accelerate",
    "peft": "huggingface/peft",
    "trl": "huggingface/trl",
    "timm": "huggingface/pytorch-image-models",
    "torchvision": "pytorch/vision",
    "torchaudio": "pytorch/audio",
    "torchao": "pytorch/ao",
    "torchtune": "pytorch/torchtune",
    "triton": "triton-lang/triton",
    "lightning": "Lightning-AI/pytorch-lightning",
    "pytorch_lightning": "Lightning-AI/pytorch-lightning",
    "torch_geometric": "pyg-team/pytorch_geometric",
    "flash_attn": "Dao-AILab/flash-attention",
    "xformers": "facebookresearch/xformers",
    "vllm": "vllm-project/vllm",
    "deepspeed": "deepspeedai/DeepSpeed",
    "einops": "arogozhnikov/einops",
    "numpy": "numpy/numpy",
}
_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?P<package>[A-Za-z_][\w.-]*?)(?:\.py$|/)")
_PARTS = {
    "_dynamo": "module: dynamo",
    "_functorch": "module: aotdispatch",
    "_inductor": "module: inductor",
    "_higher_order_ops": "module: higher order operators",
    "distributed": "oncall: distributed",
}
_LAYERS = {
    "dynamo": "module: dynamo",
    "aot_eager": "module: aotdispatch",
    "aotautograd": "module: aotdispatch",
    "aot_eager_decomp_partition": "module: decompositions",
    "inductor": "module: inductor",
}
# What torch itself did wrong; other findings say what the program or a library does that cannot be compiled.
_TORCHS_OWN_ERRORS = re.compile(
    r"InternalTorchDynamoError|InductorError|LoweringException|CppCompileError|AssertionError|BackendCompilerFailed|TritonMissing|"
    r"internal error|SymInt|FakeTensor"
)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Where to file it, why there, and the label that PyTorch's triage gives to such issues, where one is known.

    `name` is None where there is nothing to file.
    """

    name: str | None
    why: str
    label: str | None = None

    @property
    def said(self) -> str:
        """Where to file it and why, in one sentence."""
        return f"nothing to file: {self.why}" if self.name is None else f"{self.name}: {self.why}"


def of_layer(minified: Mapping[str, Any], frames: Iterable[str]) -> Repository:
    """Where a reduced failure belongs: `frames` are the source files of its error, the innermost last."""
    guilty = minified.get("guilty")
    layer = str(guilty.get("layer") or "") if isinstance(guilty, dict) else ""
    known = next((label for name, label in _LAYERS.items() if layer.lower().replace(" ", "_").startswith(name)), None)
    if known is not None:
        return Repository(name=TORCH, why=f"the guilty layer is {layer}, which is part of PyTorch", label=known)
    if layer == "eager":
        return Repository(name=OWN, why="it fails without the compiler, too")
    package = _package(list(frames))
    if package is not None and package != "torch":
        return _library(package, f"the back end `{layer}` is in the package {package}" if layer else f"the error comes from {package}")
    if layer:
        return Repository(name=OWN, why=f"PyTorch's own layers pass: the guilty layer is the back end `{layer}`, which is not PyTorch's")
    return Repository(name=TORCH, why="the failure is one of `torch.compile`; which layer it is in was not looked for", label="oncall: pt2")


def of_benchmark(facts: Mapping[str, Any]) -> Repository:
    """A measured regression or a wrong result of torch's own back ends is torch's; what compared itself equal is nobody's.

    Neither is what each call of compiled code costs: an arm that loses no more than its look-ups took.
    """
    compared = [element for element in as_list(facts.get("comparisons")) if isinstance(element, dict)]
    small = {
        str(record.get("arm")): why for record in compared if record.get("verdict") == "SLOWER" and (why := _cost_of_a_call(record, facts))
    }
    bad = {str(mapping.get("verdict")) for mapping in compared if str(mapping.get("arm")) not in small} & {"WRONG", "SLOWER"}
    if bad:
        said = ", ".join(sorted(bad))
        return Repository(name=TORCH, why=f"compiled code is {said} in a program that runs uncompiled", label="oncall: pt2")
    return Repository(name=None, why=next(iter(small.values()), "the benchmark found nothing that is slower or wrong"))


def _cost_of_a_call(comparison: Mapping[str, Any], facts: Mapping[str, Any]) -> str | None:
    """That an arm is slower by no more than its look-ups took, where both were measured."""
    arms = {str(element.get("name")): element for element in as_list(facts.get("arms")) if isinstance(element, dict)}
    name = str(comparison.get("arm"))
    slow, fast = arms.get(name, {}), arms.get(str(comparison.get("baseline")), {})
    slow_ms, fast_ms = as_float(slow.get("median_ms")), as_float(fast.get("median_ms"))
    lookup_us = as_float(slow.get("lookup_us"))
    if slow_ms is None or fast_ms is None or lookup_us is None:
        return None
    more_ms, lookup_ms = slow_ms - fast_ms, lookup_us / 1000
    if not 0 <= more_ms <= lookup_ms:
        return None
    return (
        f"{name} takes {more_ms:.3f} ms a call more, no longer than looking up its compiled code ({lookup_ms:.3f} ms): compile more at once"
    )


def of_report(report: Report) -> Repository:
    """Where what a run's first finding says belongs; notes are nothing to file."""
    finding = next((item for item in report.findings if item.severity != "note"), None)
    if finding is None:
        return Repository(name=None, why="this run has no error and no warning")
    broken = _torchs_own(report, finding)
    if broken is not None:
        return broken
    where = finding.where
    place = f"finding {finding.code} is about"
    if where is None:
        return Repository(name=OWN, why=f"{place} the whole program")
    if is_own_file(where.file, report.run):
        inner = _innermost(report, finding)
        if inner is not None:
            return inner
        return Repository(name=OWN, why=f"{place} a line of your own code; `dynadiag fix` may change it")
    package = _package([where.file])
    if package is None or package == "torch" or is_torchs_file(where.file):
        return Repository(name=TORCH, why=f"{place} a line of PyTorch", label=_label([where.file]))
    return _library(package, f"{place} a line of {package}")


def _torchs_own(report: Report, finding: Finding) -> Repository | None:
    """An error of the compiler itself: its innermost frame decides, and a back end that is not torch's."""
    frames = {frame.id: frame for frame in report.run.frames if frame.id in finding.evidence}
    problems = [
        problem for problem in report.run.problems if problem.kind in ("error", "suppressed_error", "backend_error", "backward_error")
    ]
    near = [item for item in problems if item.frame in frames] or [element for element in problems if finding.severity == "error"]
    text = next((entry.text for entry in near), None)
    if text is None or not _TORCHS_OWN_ERRORS.search(text):
        return None
    files = re.findall(r'File "([^"\n]{1,1000})"', text) or [place.file for one in near[:1] for place in one.stack]
    package = _package(files)
    if package not in (None, "torch"):
        return _library(str(package), f"the innermost frame of the error is in {package}")
    if files and is_own_file(files[-1], report.run):
        return Repository(name=OWN, why="the innermost frame of the error is in your own code, called by the compiler")
    return Repository(name=TORCH, why="the compiler failed with an error of its own", label=_label(files) or "oncall: pt2")


def _innermost(report: Report, finding: Finding) -> Repository | None:
    """The library that an own line calls, where the graph breaks inside it."""
    site = next((graph_break for graph_break in report.graph_breaks if graph_break.id in finding.evidence), None)
    inner: Location | None = site.torch_frame if site is not None else None
    if inner is None or is_own_file(inner.file, report.run) or is_standard_library(inner.file):
        return None
    package = _package([inner.file])
    if package is None or package == "torch":
        return None
    return _library(package, f"the graph breaks inside {package}, below a line of yours")


def _library(package: str, why: str) -> Repository:
    if package in _TRACKERS:
        return Repository(name=_TRACKERS[package], why=why)
    return Repository(name=f"the issue tracker of {package}", why=why)


def _package(files: list[str]) -> str | None:
    """The package of the innermost frame that is in one."""
    for file in reversed(files):
        if (found := _INSTALLED.search(normal_path(file))) is not None:
            return found["package"]
        if is_torchs_file(file):
            return "torch"
    return None


def _label(files: list[str]) -> str | None:
    for file in reversed(files):
        for part, label in _PARTS.items():
            if f"/torch/{part}/" in normal_path(file):
                return label
    return None
