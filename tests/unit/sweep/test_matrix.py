"""A matrix in TOML: what is meant, and one line for what cannot be."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.errors import UnreadableInputError, UsageError
from dynadiag.sweep import tasks
from dynadiag.sweep.matrix import Arm, read_matrix
from dynadiag.sweep.tasks import tasks_of


@pytest.fixture
def folder(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("print('hello')\n")
    return tmp_path


def matrix_of(folder, text):
    (folder / "matrix.toml").write_text(text)
    return read_matrix(folder / "matrix.toml")


def test_subjects_by_arms_by_verbs_are_the_tasks(folder):
    matrix = matrix_of(
        folder,
        """
        verbs = ["run", "explain"]
        timeout-s = 30
        memory-gb = 2.5
        [subjects]
        scripts = ["*.py --mode {mode} --size 3"]
        [[arms]]
        name = "default"
        [[arms]]
        name = "tuned"
        mode = "max-autotune"
        """,
    )
    assert (matrix.timeout_s, matrix.memory_bytes) == (30, 2_500_000_000)
    tasks = tasks_of(matrix)
    assert len(tasks) == len({task.key for task in tasks}) == 2 * 2 * 2
    assert {task.words for task in tasks} == {
        (name, "--mode", mode, "--size", "3") for name in ("a.py", "b.py") for mode in ("", "max-autotune")
    }


def test_a_key_names_subject_arm_verb_and_versions(folder):
    text = '[subjects]\nscripts = ["a.py"]\n'
    (before,) = tasks_of(matrix_of(folder, text))
    (again,) = tasks_of(matrix_of(folder, f"timeout-s = 5\n{text}"))
    assert again.key == before.key  # how long it may take does not make it another task
    (other_arm,) = tasks_of(matrix_of(folder, f'{text}[[arms]]\nname = "x"\n'))
    (other_verb,) = tasks_of(matrix_of(folder, f'verbs = ["run"]\n{text}'))
    (other_options,) = tasks_of(matrix_of(folder, f'explain-options = ["--cost"]\n{text}'))
    assert other_options.options == ("--cost",)
    (folder / "a.py").write_text("print('changed')\n")
    (other_file,) = tasks_of(matrix_of(folder, text))
    assert len({before.key, other_arm.key, other_verb.key, other_options.key, other_file.key}) == 5


def test_a_function_is_found_wherever_it_runs_and_its_file_makes_the_key(folder):
    text = '[subjects]\nfunctions = ["a.py:step", "package.module:step"]\n'
    tasks = tasks_of(matrix_of(folder, text))
    assert [json.loads(task.words[2])["folder"] for task in tasks] == [str(folder)] * 2  # `minify` runs it in another folder
    moved = folder / "moved"
    moved.mkdir()
    (moved / "a.py").write_text((folder / "a.py").read_text())
    assert [task.key for task in tasks_of(matrix_of(moved, text))] == [task.key for task in tasks]
    (moved / "a.py").write_text("print('changed')\n")
    assert [task.key == old.key for task, old in zip(tasks_of(matrix_of(moved, text)), tasks, strict=True)] == [False, True]


def test_a_model_that_no_library_has_is_named_with_the_nearest_one(folder, monkeypatch):
    listed = {sys.executable: ("resnet18", "vgg11"), str(folder / "older"): ("resnet18",)}
    monkeypatch.setattr(tasks, "_listed", lambda python, suite: (listed[python], "1.0"))
    monkeypatch.setattr(tasks, "_versions", lambda python: (("torch", "2.15"),))
    (folder / "older").touch()
    arms = '[[arms]]\nname = "new"\n[[arms]]\nname = "old"\npython = "older"\n'
    matrix = matrix_of(folder, f'[subjects]\nsuites = [{{ name = "torchvision", models = ["res*", "vgg11"] }}]\n{arms}')
    assert [(task.subject, task.arm.name) for task in tasks_of(matrix)] == [
        ("torchvision:resnet18", "new"),
        ("torchvision:resnet18", "old"),
        ("torchvision:vgg11", "new"),  # that the older one does not have it is no error
    ]
    wrong = matrix_of(folder, f'[subjects]\nsuites = [{{ name = "torchvision", models = ["vgg11", "resnet81"] }}]\n{arms}')
    with pytest.raises(UsageError, match=r"torchvision has no model that fits 'resnet81'; did you mean 'resnet18'\?"):
        tasks_of(wrong)


def test_arms_that_a_script_cannot_tell_apart_are_refused(folder):
    text = '[subjects]\nscripts = ["a.py"]\n[[arms]]\nname = "one"\n[[arms]]\nname = "two"\nmode = "reduce-overhead"\n'
    with pytest.raises(UsageError, match=r"one and two are the same for a\.py.*a\.py --mode \{mode\}"):
        tasks_of(matrix_of(folder, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[subject]\nscripts = ["a.py"]', "has no setting 'subject'; did you mean 'subjects'"),
        ('[subjects]\nscript = ["a.py"]', "[subjects] has no setting 'script'; did you mean 'scripts'"),
        ('[subjects]\nscripts = ["a.py"]\n[[arms]]\nname = "x"\nmod = "d"', "[[arms]] 1 has no setting 'mod'; did you mean 'mode'"),
        ('[subjects]\nscripts = ["c.py"]', "there is no file c.py"),
        ('[subjects]\nscripts = ["c*.py"]', "no file fits c*.py"),
        ('[subjects]\nscripts = ["a.py \'"]', "No closing quotation"),
        ('[subjects]\nscripts = "a.py"', "scripts has to be a list of texts"),
        ('[subjects]\nfunctions = ["steps"]', "does not name a function"),
        ('[subjects]\nsuites = ["torchvison"]', "name has to be one of torchvision, transformers, timm"),
        ('[subjects]\nsuites = [{ limit = 3 }]', "name is missing"),
        ('[subjects]\nsuites = [{ name = "timm", limit = 0 }]', "limit has to be at least 1"),
        ('verbs = ["explian"]\n[subjects]\nscripts = ["a.py"]', "verbs has to be of run, explain"),
        ('explain-options = ["--no-prob"]\n[subjects]\nscripts = ["a.py"]', "explain-options has to be of --cost, --no-probe"),
        ('timeout-s = true\n[subjects]\nscripts = ["a.py"]', "timeout-s has to be a number"),
        ('[subjects]\nscripts = ["a.py"]\n[[arms]]\nname = "x"\npython = "no/python"', "python: there is no file"),
        ('[subjects]\nscripts = ["a.py"]\n[[arms]]\nname = "x"\nprecision = "fp8"', "precision has to be one of fp32, bf16, fp16"),
        ('[subjects]\nscripts = ["a.py"]\n[[arms]]\nname = "x"\n[[arms]]\nname = "x"', "two arms have the same name"),
        ('verbs = ["fix"]\n[subjects]\nfunctions = ["a:b"]', "fix changes scripts of your own"),
        ("verbs = ['run']", "names no subjects"),
        ("= 3", "is not valid TOML"),
        ("a = " + "[" * 5000, "is not valid TOML"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line(folder, text, said):
    with pytest.raises(UsageError) as raised:
        matrix_of(folder, text)
    assert said in raised.value.message
    assert "\n" not in raised.value.message


def test_no_file_is_one_line(tmp_path):
    with pytest.raises(UnreadableInputError, match="No such file"):
        read_matrix(tmp_path / "none.toml")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(["backend", "mode", "dynamic", "precision", "train", "device", "gpus", "name"]), value=_VALUES)
def test_an_arm_takes_only_values_of_its_types(tmp_path_factory, key, value):
    from dynadiag.sweep import matrix

    given_arm = {"name": "x", key: value}
    try:
        arm = matrix._arm(given_arm, "[[arms]] 1", tmp_path_factory.getbasetemp())
    except UsageError as error:
        assert "\n" not in error.message
        return
    assert isinstance(arm, Arm)
    assert arm.python == sys.executable
    assert all(type(one) in (str, bool) for one in arm.settings.values())
