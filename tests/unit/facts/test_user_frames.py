"""Which line is the user's own, also for paths of other machines."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.facts.user_frames import (
    full_place,
    is_own_file,
    joined_stack,
    own_entry,
    own_frame,
    project_path,
    resume_line,
    source_function,
)
from dynadiag.model import CompileKey, Frame, Location, Process, Run, RunInfo

RUN = Run(info=RunInfo(cwd="/home/me/proj"), site_prefixes=("/usr/lib/python3.12", "/opt/torch-src/torch"))


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/proj/train.py", True),
        ("train.py", True),
        ("<stdin>", True),
        ("<ipython-input-3-abc>", True),
        ("/tmp/ipykernel_12/345.py", True),
        ("/data/users/x/checkout/models/torch_utils/net.py", True),
        ("C:\\Users\\me\\proj\\train.py", True),
        ("/usr/lib/python3.12/contextlib.py", False),
        ("/opt/torch-src/torch/nn/modules/module.py", False),
        ("/data/users/x/pytorch/torch/_dynamo/eval_frame.py", False),
        ("/data/users/x/pytorch/torch/optim/adam.py", False),
        ("/root/.venv/lib/python3.13/site-packages/transformers/modeling.py", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("C:\\Users\\me\\venv\\Lib\\site-packages\\torch\\nn\\functional.py", False),
        ("C:\\Python312\\Lib\\contextlib.py", False),
        ("/home/me/tools/dynadiag/record/inside.py", False),
        ("/home/me/tools/dynadiag/shadow/live.py", False),
        ("/home/me/tools/dynadiag/compare/live/watch.py", False),
        ("/home/me/tools/dynadiag/compare/calls.py", False),
        ("<frozen runpy>", False),
        ("<eval_with_key>.3", False),
        ("", False),
    ],
)
def test_own_files(file, own):
    assert is_own_file(file, RUN) is own


PROJECT = replace(RUN, info=RunInfo(cwd="/home/me/proj", own=("/home/me/proj/src", "/opt/env/lib/python3.12/site-packages/mine")))


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/proj/src/net.py", True),
        ("src/net.py", True),
        ("/home/me/proj/tools/train.py", True),  # the program
        ("tools/train.py", True),
        ("/home/me/proj/tools/helper.py", False),
        ("/home/me/proj/src2/net.py", False),
        ("/home/me/proj/src/_vendor/six.py", False),
        ("/home/me/proj/src/.venv/lib/python3.12/site-packages/numpy/core.py", False),
        ("/home/me/proj/src/.venv/lib/python3.12/ast.py", False),
        ("/opt/env/lib/python3.12/site-packages/mine/net.py", True),
        ("/opt/env/lib/python3.12/site-packages/other/net.py", False),
        ("/usr/lib/python3.12/contextlib.py", False),
        ("<stdin>", True),
    ],
)
def test_the_folders_that_a_project_names_are_what_is_its_own(file, own):
    info = replace(PROJECT.info, libraries=("/home/me/proj/src/_vendor/six.py",))
    process = Process(index=0, log="a", argv=("/home/me/proj/tools/train.py",))
    prefixes = ("/usr/lib/python3.12", "/opt/env/lib/python3.12/site-packages")
    assert is_own_file(file, replace(PROJECT, info=info, processes=(process,), site_prefixes=prefixes)) is own


def test_a_package_that_was_found_outside_of_site_packages_is_a_library():
    run = replace(RUN, libraries=("/home/me/proj/deps/lib",), info=replace(RUN.info, libraries=("/home/me/proj/_vendor/six.py",)))
    files = ("deps/lib/a.py", "deps/library.py", "_vendor/six.py", "_vendor/x.py")
    assert [file for file in files if is_own_file(f"/home/me/proj/{file}", run)] == ["deps/library.py", "_vendor/x.py"]


def test_the_innermost_own_frame_wins_and_none_is_said():
    stack = (Location("/home/me/proj/a.py", 1), Location("/home/me/proj/b.py", 2), Location("/x/site-packages/lib.py", 3))
    assert own_frame(stack, RUN) == stack[1]
    assert own_frame(stack[2:], RUN) is None


def test_a_stack_that_is_complete_already_is_left_alone():
    entry = (Location("a.py", 9, "<module>"), Location("a.py", 1, "f"))
    whole = (Location("a.py", 9, "<module>"), Location("a.py", 4, "f"))
    assert joined_stack(entry, whole) == whole
    assert joined_stack(entry, whole[1:]) == whole
    assert joined_stack((), whole) == whole
    assert joined_stack(entry, ()) == entry


def test_a_library_frame_names_the_calling_function_without_a_line():
    """torch leaves the two innermost callers out of `dynamo_start`, so their line would be a guess."""
    stack = (Location("/home/me/proj/train.py", 6, "step"), Location("/x/site-packages/lib.py", 3, "g"))
    frame = Frame(
        id="f0", key=CompileKey(0, 0, 0, 0), attempts=1, name="g", file="/x/site-packages/lib.py", line=3, outcome="skipped", stack=stack
    )
    assert own_entry(frame, RUN) == Location("/home/me/proj/train.py", None, "step")
    exact = replace(frame, callers=(*stack, Location("/home/me/proj/net.py", 4, "call"), Location("/x/site-packages/lib.py", 8, "h")))
    assert own_entry(exact, RUN) == exact.callers[2]


def test_resume_functions_are_named_as_the_function_that_a_person_wrote():
    assert source_function("torch_dynamo_resume_in_forward_at_12") == "forward"
    assert source_function("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_12") == "f"
    assert source_function("Trainer.torch_dynamo_resume_in_loss_at_36") == "Trainer.loss"
    assert (resume_line("torch_dynamo_resume_in_forward_at_12"), resume_line("forward")) == (12, None)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/proj/src/net.py", "src/net.py"),
        ("/scripts/tools/train.py", "train.py"),
        ("/a/lib/python3.12/site-packages/torch/optim/adam.py", "torch/optim/adam.py"),
        ("/elsewhere/deep/down/x.py", "down/x.py"),
        ("x.py", "x.py"),
    ],
)
def test_project_paths_do_not_name_the_machine(file, expected):
    run = Run(info=RunInfo(cwd="/home/me/proj"), processes=(Process(index=0, log="a", argv=("/scripts/tools/train.py",)),))
    assert project_path(file, run) == expected


@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=3))
def test_any_text_is_a_path(file, prefixes):
    run = Run(info=RunInfo(cwd=file), site_prefixes=tuple(prefixes))
    assert is_own_file(file, run) in (True, False)
    assert is_own_file(file, replace(run, info=RunInfo(cwd=file, own=tuple(prefixes), libraries=(file,)))) in (True, False)
    assert isinstance(project_path(file, run), str)


@pytest.mark.parametrize(
    ("short", "files", "prefixes", "full"),
    [
        ("me/proj/net.py", ["/home/me/proj/net.py"], (), "/home/me/proj/net.py"),
        ("mp/net.py", ["/tmp/net.py", "/tmp/mp/other.py"], (), "/tmp/net.py"),  # noqa: S108
        ("sers/me/net.py", ["C:\\Users\\me\\net.py"], (), "C:\\Users\\me\\net.py"),
        ("e/net.py", ["/home/me/net.py"], (), None),  # it would be the end of a folder's name
        ("a/net.py", ["/one/a/net.py", "/two/a/net.py"], (), None),
        ("a/net.py", ["/one/a/net.py", "/two/a/net.py"], ("/two/venv/lib/python3.12/site-packages",), "/two/a/net.py"),
        ("lightning/log.py", ["/home/me/proj/net.py"], (), None),
        ("/home/net.py", [], (), "/home/net.py"),
        ("<string>", [], (), "<string>"),
        ("train.py", ["train.py", "/home/me/train.py"], (), "train.py"),
    ],
)
def test_a_file_that_torch_shortened_is_one_that_the_run_knows_or_none(short, files, prefixes, full):
    frames = tuple(
        Frame(id=f"f{number}", key=CompileKey(0, 0, number, 0), attempts=1, name="f", file=file, line=1, outcome="compiled")
        for number, file in enumerate(files)
    )
    found = full_place(Location(short, 3, "f"), Run(info=RunInfo(), frames=frames, site_prefixes=prefixes))
    assert (found and found.file) == full
