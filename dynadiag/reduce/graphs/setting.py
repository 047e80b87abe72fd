"""All that decides how a captured graph behaves, besides the graph and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Check = Literal["raises", "forward", "gradient", "mutation"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the graph is compiled and called. `backend` is a name, or a function inside one process.

    `check` is what is compared: "raises" nothing (only errors count), "forward" the results, "gradient" also the gradients, "mutation" also
    the inputs as the call left them; `backward` says whether there is one. `memory_limit_mib` is what a run may take besides what the
    process has already; then running out of memory is a failure like others. `autocast` is a device type and a dtype name.
    `backend_source` is the source of a backend of the user's script, which names it `backend_as`; `lost_options` are options that could not
    be captured.
    `calls` is how often it is called, each time with fresh inputs, random ones drawn anew.
    With `writes` each result that a gradient flows through is written in place after the call, as the caller may do.
    `groups` are the process groups that its collectives name, with their number of ranks: groups that communicate with nobody.
    With `inner` an ATen graph goes to inductor's inner compiler as it is, without `torch.compile`.
    """

    backend: Any = "inductor"
    mode: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    grad: bool = True
    inference: bool = False
    autocast: tuple[str, str] | None = None
    default_dtype: str = "float32"
    deterministic: bool = False
    matmul_precision: str = "highest"
    backward: bool = False
    check: Check = "raises"
    backend_source: str | None = None
    backend_as: str | None = None
    memory_limit_mib: int | None = None
    lost_options: tuple[str, ...] = ()
    inner: bool = False
    calls: int = 1
    writes: bool = False
    groups: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data; the backend by its name."""
        data = {field_.name: getattr(self, field_.name) for field_ in fields(self)}
        return {**data, "options": dict(self.options), "groups": dict(self.groups), "backend": backend_name(self.backend)}


def from_json(data: Mapping[str, Any]) -> Setting:
    """The setting that `to_json` wrote; keys of a newer dynadiag are left out."""
    known = {field_.name for field_ in fields(Setting)}
    kept = {name: value for name, value in data.items() if name in known}
    if isinstance(kept.get("autocast"), list):
        kept["autocast"] = tuple(kept["autocast"])
    return Setting(**kept)


def backend_name(backend: Any) -> str:
    """A name for a backend."""
    return backend if isinstance(backend, str) else str(getattr(backend, "__name__", type(backend).__name__))


INNER = "compile_fx_inner"
"""The name of inductor's inner compiler, which is no backend."""


def inner_of(setting: Setting) -> Setting | None:
    """The setting with which inductor's inner compiler gets the graph as it is; None for another backend, or where it does already."""
    return replace(setting, inner=True) if setting.backend == "inductor" and not setting.inner else None


def compiler_name(setting: Setting) -> str:
    """The backend, or the inner compiler."""
    return INNER if setting.inner else backend_name(setting.backend)
