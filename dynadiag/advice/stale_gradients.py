"""What to change where a compiled graph overwrites what its own backward needs."""

from __future__ import annotations

from dynadiag.model.report import Advice

NEW_TENSOR = Advice(
    slug="assign-new-tensor",
    text=(
        "Do not write into the tensor: assign a new one (`self.state = new` for `self.state.copy_(new)`, `self.n = self.n + 1` for "
        "`self.n += 1`). An argument or a global is returned instead, and assigned outside."
    ),
)
