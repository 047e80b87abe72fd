"""What a C++ compiler said is used again for the same source and command alone; torch's own function asks a script that counts."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys

import pytest
import torch
import torch._inductor.cpp_builder as builder
from torch._inductor.exc import CppCompileError

from dynadiag.reduce import graph_worker as worker
from dynadiag.reduce.core.failure import environment_trouble, from_exception
from dynadiag.reduce.graphs import judge
from dynadiag.reduce.graphs.candidate import candidate_of
from dynadiag.reduce.graphs.setting import Setting
from dynadiag.torch_compat.inductor import cpp_answers

COMPILER = """
import pathlib, sys
source, target = sys.argv[1], sys.argv[sys.argv.index("-o") + 1]
text = pathlib.Path(source).read_text()
with open({asked!r}, "a") as asked:
    asked.write(text + chr(10))
print("In file", source, "for", target)
if text.startswith("status "):
    print(source + ":1:1: error: " + text.split(" ", 2)[2])
    sys.exit(int(text.split()[1]))
pathlib.Path(target).write_text("library of " + text)
"""


class Machine:
    """A folder with a compiler that counts, and a folder for each child."""

    def __init__(self, folder):
        self.folder = folder
        self.asked = folder / "asked"
        self.asked.touch()
        self.store = folder / "store"
        self.store.mkdir()
        (folder / "compiler.py").write_text(COMPILER.format(asked=str(self.asked)))

    def compile(self, child, text, *flags, name="k"):
        folder = self.folder / child
        folder.mkdir(exist_ok=True)
        source, target = folder / f"{name}.cpp", folder / f"{name}.so"
        source.write_text(text)
        command = [sys.executable, str(self.folder / "compiler.py"), str(source), *flags, "-o", str(target)]
        builder._run_compile_cmd(shlex.join(command), str(folder))
        return target

    def error(self, child, text):
        with pytest.raises(CppCompileError) as caught:
            self.compile(child, text)
        return caught.value

    @property
    def count(self):
        return len(self.asked.read_text().splitlines())


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    with cpp_answers.remembered(made.store, lambda error: environment_trouble(error) is not None):
        yield made
    assert builder.subprocess is subprocess


def test_a_library_is_compiled_once_for_each_source_and_command(machine):
    first, second = machine.compile("one", "good"), machine.compile("two", "good")
    assert first.read_text() == second.read_text() == "library of good" and machine.count == 1
    assert second.stat().st_mode & stat.S_IXUSR
    machine.compile("two", "other", name="l")
    machine.compile("two", "good", "-O0", name="m")
    assert machine.count == 3
    second.write_text("changed by the child")
    assert machine.compile("three", "good").read_text() == "library of good" and machine.count == 3


def test_an_error_is_remembered_in_a_search_alone_and_is_the_same_failure(machine):
    fresh = machine.error("one", "status 1 no such thing")
    machine.error("one", "status 1 no such thing")
    assert machine.count == 2
    with cpp_answers.errors_too():
        machine.error("two", "status 1 no such thing")
        known = machine.error("three", "status 1 no such thing")
        assert machine.count == 3
    machine.error("three", "status 1 no such thing")
    assert machine.count == 4
    assert from_exception(known, "compile").same_as(from_exception(fresh, "compile"))
    assert "three/k.cpp for" in str(known) and "two/k" not in str(known)


@pytest.mark.parametrize(
    "text", ["status 4 internal compiler error: crashed", "status 1 x.cpp: No space left on device", "status 137 killed"]
)
def test_what_the_machine_may_be_to_blame_for_is_asked_again(machine, text):
    with cpp_answers.errors_too():
        machine.error("one", text)
        machine.error("two", text)
    assert machine.count == 2


def test_where_nothing_can_be_kept_the_compiler_is_asked(machine):
    machine.store.rmdir()
    with cpp_answers.errors_too():
        assert machine.compile("one", "good").exists() and machine.compile("two", "good").exists()
        machine.error("one", "status 1 wrong")
        machine.error("two", "status 1 wrong")
    assert machine.count == 4


def test_other_commands_go_to_the_compiler(machine):
    folder = machine.folder
    (folder / "a.cpp").write_text("good")
    for target, more in ((folder / "a.o", []), (folder / "b.so", [str(folder / "a.cpp")])):
        for _ in range(2):
            command = [sys.executable, str(folder / "compiler.py"), str(folder / "a.cpp"), *more, "-o", str(target)]
            builder._run_compile_cmd(shlex.join(command), str(folder))
    assert machine.count == 4 and os.listdir(machine.store) == []


def test_nothing_is_remembered_outside():
    with cpp_answers.errors_too():
        assert builder.subprocess is subprocess


def test_the_worker_keeps_libraries_until_its_end(tmp_path):
    (tmp_path / "kernels-left").mkdir()
    with worker.kernels_kept(tmp_path):
        (folder,) = tmp_path.iterdir()
        assert folder.name.startswith("kernels-") and folder.name != "kernels-left" and builder.subprocess is not subprocess
    assert list(tmp_path.iterdir()) == [] and builder.subprocess is subprocess
    with worker.kernels_kept(tmp_path / "not there"):
        assert builder.subprocess is subprocess


def test_every_question_asks_the_compiler_once_for_one_source(monkeypatch, tmp_path):
    monkeypatch.setattr(judge, "observe", lambda candidate, setting, tell, **_: tell({"invalid": f"errors: {cpp_answers._now.errors}"}))
    candidate = candidate_of(torch.fx.symbolic_trace(torch.nn.ReLU()), [torch.ones(2)])
    with cpp_answers.remembered(tmp_path, lambda error: False):
        seen = judge.observe_isolated(candidate, Setting(backend="eager"), timeout_s=600)
    assert seen.invalid == "errors: True"
