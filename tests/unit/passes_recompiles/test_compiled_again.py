"""`compile-once` is said where one line compiles a function that one definition makes anew each time, and nowhere else."""

import pytest

from dynadiag.model.run import CompileCall, Location
from dynadiag.passes.find_recompiles import find_recompiles


def size(entry, old, new):
    return f"0/{entry}: tensor 'x' size mismatch at index 0. expected {old}, actual {new}"


def equals(entry, source, value):
    return f"0/{entry}: {source + ' == ' + value:<60}  # return x * k  # t.py:11 in step"


def advised(run):
    (transition,) = find_recompiles(run).transitions
    return [advice.slug for advice in transition.advice]


def calls(builders, *, begins=(10, 10, 10), target="main.<locals>.step", at=(5, 5, 5), epochs=(0, 0, 0), process=0):
    """Three calls of `torch.compile`: where their functions begin, and which lines of the script make the calls."""
    return tuple(
        CompileCall(
            process=process,
            location=Location(builders.SCRIPT, line),
            target=target,
            backend="eager",
            definition=None if begin is None else Location(builders.SCRIPT, begin),
            epoch=epoch,
        )
        for begin, line, epoch in zip(begins, at, epochs, strict=True)
    )


def test_compiling_again_on_one_line_is_said_first(builders):
    calls = tuple(
        CompileCall(process=0, location=Location("t.py", 5), target="train.main.<locals>.step", backend="eager") for _ in range(3)
    )
    run = builders.replace(builders.recompiled([equals(0, "k", "1.0")]), compile_calls=calls)
    assert advised(run)[0] == "compile-once"


@pytest.mark.parametrize(
    ("target", "file", "reason"),
    [
        ("train.step", "/home/me/project/train.py", equals(0, "k", "1.0")),  # the same function each time
        ("train.main.<locals>.step", "/home/me/project/train.py", size(0, 4, 8)),  # an argument, no closure
        ("other.main.<locals>.step", "/home/me/project/other.py", equals(0, "k", "1.0")),  # another function of that name
    ],
)
def test_compiling_again_is_not_blamed_for_anything_else(builders, target, file, reason):
    own = CompileCall(process=0, location=Location(builders.SCRIPT, 5), target="train.step", backend="eager")
    calls = (own, *(CompileCall(process=0, location=Location(file, 5), target=target, backend="eager") for _ in range(3)))
    run = builders.replace(builders.recompiled([reason]), compile_calls=calls)
    assert "compile-once" not in advised(run)


def test_one_definition_that_one_line_compiles_again_is_told(builders):
    run = builders.recompiled([equals(0, "k", "1.0")])
    assert advised(builders.replace(run, compile_calls=calls(builders)))[0] == "compile-once"
    lambdas = calls(builders, target="main.<locals>.<lambda>")
    named = builders.recompiled([equals(0, "k", "1.0")], name="<lambda>")
    assert advised(builders.replace(named, compile_calls=lambdas))[0] == "compile-once"


def test_functions_that_a_helper_compiles_on_its_one_line_are_not_one(builders):
    """`def compiled(fn): return torch.compile(fn)` called for `step` of several functions."""
    begins = {"a": 10, "b": 20, "c": 30}
    own, *others = (calls(builders, target=f"{outer}.<locals>.step", begins=(line,) * 3)[0] for outer, line in begins.items())
    run = builders.recompiled([equals(0, "k", "1.0")])
    assert "compile-once" not in advised(builders.replace(run, compile_calls=(own, *others)))
    told = calls(builders, target="b.<locals>.step", begins=(20, 20, 20))  # another one is made anew, not this one
    assert "compile-once" not in advised(builders.replace(run, compile_calls=(own, *told)))
    unplaced = (builders.replace(call, definition=None) for call in (own, *others))
    assert "compile-once" not in advised(builders.replace(run, compile_calls=tuple(unplaced)))


@pytest.mark.parametrize(
    "options",
    [
        {"begins": (10, 20, 30)},  # one qualified name, several definitions
        {"at": (5, 6, 7)},  # each on a line of its own
        {"epochs": (0, 1, 2)},  # torch._dynamo.reset() between them
        {"process": 1},
        {"begins": (None, None, None), "target": "main.<locals>.<lambda>"},  # an old log: lambdas share their name
    ],
)
def test_what_only_looks_like_compiling_again_is_not_told(builders, options):
    name = "<lambda>" if "target" in options else "step"
    run = builders.recompiled([equals(0, "k", "1.0")], name=name)
    assert "compile-once" not in advised(builders.replace(run, compile_calls=calls(builders, **options)))
