"""What is said of the code that runs eager because of a stance, by the line that sets it."""

import pytest

from dynadiag.advice.fallbacks import fallback_advice, why_nothing
from dynadiag.advice.uncaught import failure_advice
from dynadiag.model.location import Location
from dynadiag.model.report import Fallback
from dynadiag.model.run import Run, RunInfo


def stance(code):
    return Fallback(id="x1", fingerprint="f", kind="stance", frame=None, reason="", own_frame=Location("/t.py", 3, "f", code))


@pytest.mark.parametrize("code", ['with torch.compiler.set_stance("force_eager"):  # debug', '@torch.compiler.set_stance("force_eager")'])
def test_a_stance_that_ends_by_itself_is_meant(code):
    assert fallback_advice(stance(code)) == ()
    assert why_nothing(stance(code)) is not None


def test_a_stance_that_stays_can_be_set_back():
    (advice,) = fallback_advice(stance('torch.compiler.set_stance("force_eager")  # debug'))
    assert 'set_stance("default")' in advice.text and "debug" not in advice.text


@pytest.mark.parametrize(
    ("said", "decorator"),
    [
        (
            "got RuntimeError('There was no fake impl registered for <CustomOpDef(my::op)>. This is necessary for torch.compile/export/fx "
            "tracing to work. Please use `smooth.register_fake` to add an fake impl.')",
            "@smooth.register_fake",
        ),
        ("RuntimeError: There was no fake impl registered for <CustomOpDef(my::op)>. ", '@torch.library.register_fake("my::op")'),
    ],
)
def test_an_operator_without_a_fake_is_told_how_to_get_one(said, decorator):
    (advice,) = failure_advice(said, "TorchRuntimeError", Run(info=RunInfo()), None)
    assert (advice.slug, advice.after) == ("register-fake", decorator)
    assert "`my::op`" in advice.text


def test_a_machine_without_a_compiler_is_told_to_get_one_not_to_reduce_the_program():
    said = "InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')"
    (advice,) = failure_advice(said, "InductorError", Run(info=RunInfo(command=("python", "train.py"))), None)
    assert advice.slug == "cxx-compiler" and "g++" in advice.text and "CXX" in advice.text
