"""The parts of the recorder that need no torch: log writer, import watcher, settings, profiler events, run directory names."""

import errno
import importlib.util
import json
import os
import sys
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.import_watcher import ImportWatcher
from dynadiag.record import directory, settings, writer
from dynadiag.record.stability import StabilityWatch
from dynadiag.torch_compat.trace.hooks import Hooks
from dynadiag.torch_compat.trace.profile_events import read_events, summarise


def make_writer(folder, cap=10**6):
    opened = []
    log = writer.TraceWriter(str(folder), cap, lambda: None, opened.append)
    return log, opened


def records(folder):
    return [
        json.loads(line.split("] ", 1)[1])
        for path in sorted(folder.glob("*.log"))
        for line in path.read_text("utf-8").split("\n")
        if line.startswith("V")
    ]


def test_a_record_looks_as_torch_writes_it(tmp_path):
    log, opened = make_writer(tmp_path)
    log.record({"str": ["a", 1]}, "one\ntwo", "/somewhere/with space.py", 12)
    text = next(tmp_path.glob("dedicated_log_torch_trace_*.log")).read_text()
    header, *payload = text.splitlines()
    assert header.startswith("V")
    assert header.endswith(f' {os.getpid()} /somewhere/with_space.py:12] {{"str": ["a", 1]}}')
    assert payload == ["\tone", "\ttwo"]
    assert opened == [log]


@given(st.text(), st.text())
def test_any_text_can_be_written(tmp_path_factory, name, payload):
    folder = tmp_path_factory.mktemp("log")
    log, _ = make_writer(folder)
    log.record({"str": [name, 1]}, payload, name, 1)
    log.artifact("dynadiag_x", {"text": payload}, {})
    log.close()
    text = next(folder.glob("*.log")).read_bytes().decode("utf-8")
    assert len([line for line in text.split("\n") if line.startswith("V") and "] {" in line]) == 2


def test_a_closed_or_stolen_descriptor_is_noticed(tmp_path):
    log, opened = make_writer(tmp_path)
    log.record({"n": 1}, None, "f", 1)
    os.close(log._descriptor)
    stolen = os.open(tmp_path / "mine", os.O_CREAT | os.O_RDWR)
    assert stolen == log._descriptor
    log.record({"n": 2}, None, "f", 1)
    assert os.fstat(stolen).st_size == 0
    assert [record["n"] for record in records(tmp_path)] == [1, 2]
    assert len(opened) == 1


def test_a_fork_gets_its_own_log_and_forgets_what_was_said(tmp_path):
    log, opened = make_writer(tmp_path)
    log.record({"n": 1}, None, "f", 1)
    assert log.once("key")
    pid = os.fork()
    if pid == 0:
        log.record({"n": 2 if log.once("key") else 0}, None, "f", 1)
        os._exit(len(opened))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    log.record({"n": 3}, None, "f", 1)
    assert len(list(tmp_path.glob("*.log"))) == 2
    assert sorted(record["n"] for record in records(tmp_path)) == [1, 2, 3]


def test_the_cap_keeps_early_records_and_says_so_once(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(writer.WARNED_VARIABLE, raising=False)
    log, _ = make_writer(tmp_path, cap=500)
    for number in range(20):
        log.record({"n": number}, "x" * 50, "f", 1)
    log.artifact("dynadiag_exit", {}, {}, beyond_cap=True)
    found = records(tmp_path)
    kept = [record["n"] for record in found if "n" in record]
    assert 0 < len(kept) < 10
    assert kept == list(range(len(kept)))
    assert [record["artifact"]["name"] for record in found if "artifact" in record] == ["dynadiag_problem", "dynadiag_exit"]
    assert capsys.readouterr().err.count("dynadiag:") == 1
    monkeypatch.delenv(writer.WARNED_VARIABLE, raising=False)


def test_a_write_that_fails_warns_once_and_never_raises(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(writer.WARNED_VARIABLE, raising=False)
    log, _ = make_writer(tmp_path / "missing")
    log.record({}, None, "f", 1)
    log.record({}, None, "f", 1)
    assert capsys.readouterr().err.count("recording stopped, the script continues") == 1
    monkeypatch.delenv(writer.WARNED_VARIABLE, raising=False)


@pytest.fixture
def sample_module(tmp_path, monkeypatch):
    (tmp_path / "watched_sample.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "watched_sample"
    sys.modules.pop("watched_sample", None)


def test_a_module_is_announced_after_it_ran_also_when_it_was_only_looked_for_before(sample_module):
    seen = []
    watcher = ImportWatcher({sample_module: lambda module: seen.append(module.value)})
    watcher.install()
    try:
        assert importlib.util.find_spec(sample_module) is not None
        assert seen == []
        module = importlib.import_module(sample_module)
        assert seen == [1]
        assert "exec_module" not in vars(module.__loader__)
        assert watcher not in sys.meta_path
    finally:
        watcher.remove()


def test_two_watchers_of_one_module_are_both_called(sample_module):
    seen = []
    watchers = [ImportWatcher({sample_module: lambda module, name=name: seen.append((name, module.value))}) for name in "ab"]
    for watcher in watchers:
        watcher.install()
    importlib.import_module(sample_module)
    assert sorted(seen) == [("a", 1), ("b", 1)]
    assert not set(watchers) & set(sys.meta_path)


def test_a_loaded_module_is_announced_at_once():
    seen = []
    ImportWatcher({"json": seen.append}).install()
    assert seen == [json]


def test_settings_survive_the_environment_and_foreign_values_are_ignored():
    wanted = settings.Settings("/a b/ü", 12, 5, True, "0.1")
    assert settings.from_environment({settings.VARIABLE: wanted.dumps()}) == wanted
    for value in ("", "[]", "{}", '{"directory": 1, "else": 2}'):
        assert settings.from_environment({settings.VARIABLE: value}) is None


@dataclass
class Event:
    label: str
    begin: int
    duration: int

    def name(self):
        return self.label

    def start_ns(self):
        return self.begin * 1000

    def duration_ns(self):
        return self.duration * 1000

    def start_thread_id(self):
        return 1

    def device_type(self):
        return "DeviceType.CPU"

    def correlation_id(self):
        return 0

    def sequence_nr(self):
        return -1


def test_regions_are_added_up_without_their_children():
    events = [
        Event("TorchDynamo Cache Lookup", 0, 5),
        Event("Torch-Compiled Region: 0/0", 10, 100),
        Event("Pregraph bytecode", 12, 3),
        Event("dynadiag graph", 20, 40),
        Event("aten::add", 25, 10),
        Event("TorchDynamo Cache Lookup", 70, 4),
        Event("Torch-Compiled Region: 1/0", 75, 20),
        Event("dynadiag graph", 76, 18),
    ]
    first, second = summarise(read_events(events))
    assert (first["region"], first["calls"], first["region_us"], first["lookup_us"]) == ("0/0", 1, 76.0, 5.0)
    assert (first["pregraph_us"], first["graph_us"], first["between_us"]) == (3.0, 40.0, 33.0)
    assert (second["frame_id"], second["frame_compile_id"], second["region_us"], second["lookup_us"]) == (1, 0, 20.0, 4.0)


class _Sink:
    def __init__(self):
        self.failures = []

    def failed(self, hook, error):
        self.failures.append((hook, str(error)))

    def artifact(self, name, content, **options):
        raise AssertionError


class _Owner:
    @staticmethod
    def work(value):
        if value < 0:
            raise ValueError("negative")
        return value + 1


def test_a_hook_that_fails_changes_nothing_and_is_told():
    sink = _Sink()
    hooks = Hooks(sink)
    original = _Owner.work
    hooks.install("work", lambda: hooks.watch(_Owner, "work", after=lambda *_: 1 / 0, file=__file__))
    hooks.install("gone", lambda: hooks.watch(_Owner, "missing", file=__file__))
    assert _Owner.work(1) == 2
    with pytest.raises(ValueError, match="negative"):
        _Owner.work(-1)
    assert sink.failures == [("work", "division by zero")]
    assert hooks.health["work"] == "ok"
    assert "missing" in hooks.health["gone"]
    hooks.undo()
    assert _Owner.work is original


@given(st.text())
def test_a_slug_is_a_harmless_name(program):
    made = directory.slug(program)
    assert 0 < len(made) <= 40
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_nothing_is_stable_before_something_compiled(tmp_path):
    watch = StabilityWatch(tmp_path, 0.0)
    log = tmp_path / "dedicated_log_torch_trace_1.log"
    log.write_text('V x] {"artifact": {}}\n\t"dynamo_start"\n')
    assert not watch.is_stable()
    with log.open("a") as file:
        file.write('V x] {"dynamo_start": ')
    assert not watch.is_stable()
    with log.open("a") as file:
        file.write("{}}\n")
    assert watch.is_stable()


def test_only_python_modules_of_torch_get_a_replaced_function(monkeypatch):
    from types import ModuleType

    from dynadiag.torch_compat.trace.hooks import holders

    def work():
        pass

    compiled, source = ModuleType("torch._fake_c"), ModuleType("torch._fake")
    compiled.work = source.work = work
    source.__file__ = "/torch/_fake.py"
    monkeypatch.setitem(sys.modules, "torch._fake_c", compiled)
    monkeypatch.setitem(sys.modules, "torch._fake", source)
    assert holders("work", work) == [source]
    monkeypatch.setitem(sys.modules, "torch._fake_later", source)  # what came since is seen, and what has gone is not
    assert holders("work", work) == [source, source]
    monkeypatch.delitem(sys.modules, "torch._fake")
    assert holders("work", work) == [source]
    monkeypatch.setitem(sys.modules, "torch._fake_again", source)
    monkeypatch.delitem(sys.modules, "torch._fake_later")
    assert holders("work", work) == [source]


def test_a_source_line_is_read_without_running_the_programs_loader(tmp_path):
    import linecache

    from dynadiag.torch_compat.trace import stacks

    class Loader:
        def get_source(self, name):
            raise AssertionError("the recorder ran the program's loader")

    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xff\n")
    linecache.lazycache("generated.py", {"__name__": "generated", "__loader__": Loader()})
    linecache.cache["<cell>"] = (5, None, ["a = 1\n"], "<cell>")
    places = [
        ("generated.py", 1),
        ("<cell>", 1),
        ("<cell>", 2),
        *((str(tmp_path / name), 2) for name in ("pipe.py", "latin.py", "bytes.py")),
    ]
    assert [stacks.place(file, line, "f")["code"] for file, line in places] == [None, "a = 1", None, None, "x = '\xe9'", None]
    for name in ("generated.py", "<cell>"):
        linecache.cache.pop(name)


def test_the_end_of_a_run_is_noted_also_on_a_full_disk(tmp_path, monkeypatch):
    directory.write_marker(tmp_path, {"dynadiag": "1", "running": True})

    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    directory.write_marker(tmp_path, {"dynadiag": "1", "running": False, "exit_status": 3})
    facts = {"format": 1, "dynadiag": "1", "running": False, "exit_status": 3}
    assert json.loads((tmp_path / directory.MARKER).read_text()) | {"seal": None} == facts | {"seal": None}
    with pytest.raises(OSError, match="No space"):
        directory.write_marker(tmp_path, {"dynadiag": "x" * 2000})
    assert json.loads((tmp_path / directory.MARKER).read_text()) | {"seal": None} == facts | {"seal": None}
    assert [path.name for path in tmp_path.iterdir()] == [directory.MARKER]
