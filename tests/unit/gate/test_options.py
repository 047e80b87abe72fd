"""`[tool.dynadiag.check]`: what is read, and what is refused with the nearest right name."""

from pathlib import Path

import pytest

from dynadiag.errors import UsageError
from dynadiag.gate.result import GateOptions, configured


def settings(folder, text):
    (folder / "pyproject.toml").write_text(text)
    return configured(folder)


def test_all_settings_are_read(tmp_path):
    text = (
        "[tool.dynadiag.check]\nmax-breaks = 1\nmax-recompiles = 2\nmax-fallbacks = 0\nmin-graphs = 1\nmin-compiled = 0.9\n"
        'no-mutation-copy = true\nfail-on = "error"\nbaseline = "ci/baseline.json"\n'
    )
    wanted = GateOptions(
        max_breaks=1,
        max_recompiles=2,
        max_fallbacks=0,
        min_graphs=1,
        min_compiled=0.9,
        no_mutation_copy=True,
        fail_on="error",
        baseline=tmp_path / "ci/baseline.json",
    )
    assert settings(tmp_path, text) == wanted
    assert wanted.changed(max_breaks=None, fail_on="warning") == wanted.changed(fail_on="warning")
    assert settings(tmp_path, '[tool.dynadiag]\nown = ["."]\n') == configured(Path("/")) == GateOptions()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.dynadiag.check]\nmax-break = 1", "has no setting 'max-break'; did you mean 'max-breaks'?"),
        ("[tool.dynadiag.check]\nmax_recompiles = 1", "has no setting 'max_recompiles'; did you mean 'max-recompiles'?"),
        ("[tool.dynadiag.check]\nxyz = 1", "has no setting 'xyz'; it has: baseline, fail-on, max-breaks"),
        ("[tool.dynadiag]\nchek = 1", "has no setting 'chek'; did you mean 'check'?"),
        ("[tool.dynadiag]\ncheck = 1", "must be a table"),
        ("[tool.dynadiag.check]\nmax-breaks = true", "max-breaks must be a whole number, not True"),
        ("[tool.dynadiag.check]\nmax-breaks = -1", "max-breaks must be a whole number, not -1"),
        ("[tool.dynadiag.check]\nmin-compiled = 90", "min-compiled must be a number from 0 to 1, not 90"),
        ("[tool.dynadiag.check]\nno-mutation-copy = 1", "no-mutation-copy must be true or false"),
        ('[tool.dynadiag.check]\nfail-on = "note"', "fail-on must be one of: error, warning"),
        ("[tool.dynadiag.check]\nfail-on = []", "fail-on must be one of: error, warning"),
        ("[tool.dynadiag.check]\nbaseline = 3", "baseline must be the name of a file"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tmp_path, text, said):
    with pytest.raises(UsageError) as error:
        settings(tmp_path, text)
    assert said in error.value.message and "\n" not in error.value.message
