"""What to change where a method or a submodule of a compiled module is called by itself."""

from __future__ import annotations

import re

from dynadiag.model.location import Location
from dynadiag.model.report import Advice


def compile_part(part: str, *, is_module: bool, where: Location | None) -> tuple[Advice, ...]:
    """Compile it as well, by the name that the line gives the module; a method need not be called in another way then."""
    found = re.search(rf"([A-Za-z_][\w.]*)\.{re.escape(part)}\(", "" if where is None else where.code or "")
    module = found[1] if found else "module"
    if is_module:
        name = part if part.isidentifier() and part != module else f"compiled_{part}"
        text = (
            f"Compile it as well, once: `{name} = torch.compile({module}.{part})` with what `torch.compile` is given for the module, and "
            f"call `{name}(...)` where the program calls `{module}.{part}(...)`. It has the same parameters."
        )
        return (Advice(slug="compile-submodule", text=text, after=f"{name} = torch.compile({module}.{part})"),)
    change = f"{module}.{part} = torch.compile({module}.{part})"
    text = (
        f"Compile the method as well: `{change}`, once behind the line that compiles the module, with what `torch.compile` is given there. "
        "The calls stay as they are. Or let `forward` do this work, and call the module itself."
    )
    return (Advice(slug="compile-method", text=text, after=change),)
