"""After a run in a view every file has the bytes, mode and time that it had, however the run wrote, and whoever was killed."""

from __future__ import annotations

import ctypes
import json
import mmap  # noqa: F401
import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading  # noqa: F401
import time
import traceback
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dynadiag.errors import NoViewError, UsageError
from dynadiag.private_view import overlay, recovery
from dynadiag.private_view.choosing import command_in, private_view, roots_of
from dynadiag.private_view.consent import Apart
from dynadiag.private_view.kernel import allow_to_be_read
from dynadiag.private_view.recovery import changed_in, put_back_kept
from dynadiag.private_view.undo import Undo
from dynadiag.private_view.view import View, enter, touched

KINDS = ("overlay", "undo")
WAYS = {
    "open-w": "open('a.txt', 'w').write('new'); assert open('a.txt').read() == 'new'",
    "open-a": "open('log.csv', 'a').write('row\\n'); assert open('log.csv').read() == 'first\\nrow\\n'",
    "open-a-then-w": "open('log2.csv', 'a').write('row\\n'); open('log2.csv', 'w').write('x')",
    "open-x": "open('made.txt', 'x').write('new')",
    "open-r+": "f = open('b.bin', 'r+b'); f.seek(2); f.write(b'zz'); f.close(); assert open('b.bin', 'rb').read(4) == b'bbzz'",
    "os.open": "os.write(os.open('made2.txt', os.O_CREAT | os.O_WRONLY, 0o600), b'new')",
    "descriptor": "d = os.open('sub', os.O_RDONLY); os.write(os.open('in.txt', os.O_WRONLY | os.O_TRUNC, dir_fd=d), b'n')",
    "rename-over": "open('t.part', 'w').write('new'); os.replace('t.part', 'best.pt'); assert open('best.pt').read() == 'new'",
    "rename-away": "os.rename('old.pt', 'older.pt')",
    "rename-folder": "os.rename('folder', 'moved'); assert os.listdir('moved') == ['deep']; open('moved/deep/x', 'w').write('!')",
    "unlink": "os.unlink('gone.txt'); assert not os.path.exists('gone.txt')",
    "mkdir": "os.makedirs('n1/n2'); open('n1/n2/f', 'w').write('1'); os.rename('n1', 'n3'); open('n3/n2/f', 'a').write('2')",
    "rmtree": "shutil.rmtree('tree'); assert not os.path.exists('tree')",
    "rmtree-and-anew": "shutil.rmtree('tree2'); os.mkdir('tree2'); open('tree2/other', 'w').write('1')",
    "absolute": "open(os.path.join(HERE, 'abs.txt'), 'w').write('new')",
    "through-a-link": "open('link.txt', 'w').write('new'); assert open('linked.txt').read() == 'new'",
    "link-away": "os.unlink('link2.txt'); open('link2.txt', 'w').write('plain')",
    "symlink": "os.symlink('a.txt', 'new-link')",
    "hard-link": "os.link('hard.txt', 'harder.txt'); open('harder.txt', 'a').write('more')",
    "truncate": "os.truncate('cut.txt', 1); assert os.stat('cut.txt').st_size == 1",
    "chmod": "os.chmod('mode.txt', 0o600); os.chmod('folder2', 0o700)",
    "utime": "os.utime('time.txt', (1, 1))",
    "read-only": "os.chmod('ro.txt', 0o600); open('ro.txt', 'w').write('new'); os.chmod('ro.txt', 0o444)",
    "pathlib": "p = pathlib.Path('sub') / 'p.txt'; p.write_text('new'); p.with_name('q.txt').touch()",
    "shutil": "shutil.copytree('sub', 'copied'); shutil.copy2('a.txt', 'sub/in.txt')",
    "sqlite": "c = sqlite3.connect('runs.db'); c.execute('insert into t values (2)'); c.commit(); c.close()",
    "sqlite-wal": "c = sqlite3.connect('w.db'); c.execute('pragma journal_mode=wal'); c.execute('create table t(x)'); c.close()",
    "mmap": "f = open('map.bin', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:3] = b'zzz'; m.flush(); m.close(); f.close()",
    "shell": "assert os.system('echo hi >> shell.txt; rm -f shell2.txt; mkdir -p s/t') == 0",
    "fork": "p = os.fork() or (open('fork.txt', 'w').write('new'), os._exit(0)); os.waitpid(p, 0)",
    "thread": "t = threading.Thread(target=lambda: open('thread.txt', 'w').write('new')); t.start(); t.join()",
    "chdir": "os.chdir('sub'); open('../chdir.txt', 'w').write('new'); os.chdir('..')",
    "socket": "s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.close()",
    "append-then-cut": "f = open('log3.csv', 'a'); f.truncate(0); f.write('x'); f.close(); assert open('log3.csv').read() == 'x'",
    "own-descriptor": "d = os.open('fd.txt', os.O_RDONLY); open(f'/proc/self/fd/{d}', 'w').write('new'); os.close(d)",
    "long-name": "open('t.long', 'w').write('new'); os.replace('t.long', 'm' * 250)",
    "new-folder-renamed": "os.mkdir('k.part'); open('k.part/a', 'w').write('1'); os.rename('k.part', 'k'); open('k/b', 'w').write('2')",
    "other-log": "f = open(os.path.join(OTHER, 'log.txt'), 'a'); f.truncate(0); f.write('x'); f.close()",
    "folder-below-a-file": "try: os.makedirs('file/sub', exist_ok=True)\nexcept OSError: pass",
    "file-below-a-file": "try: open('file/x', 'w')\nexcept OSError: pass",
    "folder-that-is-there": "os.makedirs('sub', exist_ok=True); pathlib.Path('sub').mkdir(exist_ok=True)",
    "removedirs": "os.makedirs('r1/r2'); os.removedirs('r1/r2')",
    "folder-to-link": "open('latest/new', 'w').write('n'); os.rename('latest', 'latest.old'); os.symlink('run7', 'latest')",
    "tree-to-link": "open('latest2/new', 'w').write('n'); shutil.rmtree('latest2'); os.symlink('run7', 'latest2')",
    "sparse": "f = open('sparse.bin', 'r+b'); f.seek(3 << 20); f.write(b'x' * 9); f.close()",
    "sparse-replaced": "open('t.sparse', 'w').write('n'); os.replace('t.sparse', 'sparse2.bin')",
    "hard-link-renamed": "os.rename('pair1', 'pair9'); open('pair9', 'a').write('x')",
    "hard-link-replaced": "open('t.pair', 'w').write('n'); os.replace('t.pair', 'pair3')",
    "hard-link-written-and-gone": "os.link('pair5', 'pair7'); open('pair7', 'a').write('x'); os.unlink('pair5')",
    "hard-link-written-by-both-names": "open('pair11', 'a').write('x'); open('pair12', 'a').write('y'); os.chmod('pair12', 0o600)",
    "link-onto-folder": "try: os.rename('link3', 'folder3')\nexcept OSError: open('folder3/in', 'a').write('x')",
    "hard-link-moved-out": "move('out.pt', os.path.join(TMP, 'out.pt')); open(os.path.join(TMP, 'out.pt'), 'a').write('x')",
    "link-times": "os.utime('timed', (1, 1), follow_symlinks=False); os.unlink('timed2'); os.symlink('a.txt', 'timed2')",
    "closed-folder": "os.chmod('closed', 0o755); open('closed/new', 'w').write('1'); os.unlink('closed/y'); os.chmod('closed', 0o555)",
    "folder-without-rights": "open('norights/new', 'w').write('1'); os.unlink('norights/y'); os.chmod('norights', 0)",
    "pipe": "os.unlink('pipe'); os.unlink('pipe2'); open('pipe2', 'w').write('a file now')",
    "extended": "os.setxattr('marked', 'user.note', b'2') if MARKED else 0; open('t.m', 'w').close(); os.replace('t.m', 'marked2')",
    "extended-of-descriptor": "d = os.open('a.txt', os.O_RDONLY); os.setxattr(d, 'user.new', b'2') if MARKED else 0; os.close(d)",
    "exchange": "libc.renameat2(-100, b'one', -100, b'two', 2); open('one', 'a').write('x')",
    "other-folder": "open(os.path.join(OTHER, 'kept.txt'), 'w').write('new'); open(os.path.join(OTHER, 'new.txt'), 'w').write('new')",
}
PROGRAM = (
    "import ctypes, mmap, os, pathlib, shutil, socket, sqlite3, threading, json, sys\nHERE, OTHER, TMP = sys.argv[1:4]\n"
    "MARKED = os.path.exists('marks'); libc = ctypes.CDLL(None)\n"
    "move = os.rename if os.stat(TMP).st_dev == os.stat(OTHER).st_dev else shutil.move\nprint(os.getcwd() == HERE)\n"
)


def make(folder):
    """A folder with something for each way to change."""
    folder.mkdir()
    names = "a.txt linked.txt b.bin best.pt old.pt gone.txt abs.txt hard.txt cut.txt mode.txt time.txt map.bin shell.txt shell2.txt"
    for name in f"{names} fork.txt thread.txt chdir.txt fd.txt {'m' * 250}".split():
        (folder / name).write_text(name[0] * 9)
    for name in ("log.csv", "log2.csv", "log3.csv"):
        (folder / name).write_text("first\n")
    (folder / "ro.txt").write_text("old")
    (folder / "ro.txt").chmod(0o444)
    (folder / "link.txt").symlink_to("linked.txt")
    (folder / "link2.txt").symlink_to("linked.txt")
    os.link(folder / "hard.txt", folder / "hard2.txt")
    names = "sub/in.txt folder/deep/x folder2/y tree/a/b/c tree2/a file latest/m latest2/m run7/m run7/new closed/y norights/y"
    for name in f"{names} out.pt pair1 pair3 pair5 pair11 folder3/in marked marked2 one two".split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "closed").chmod(0o555)
    for number in (1, 3, 5, 11):
        os.link(folder / f"pair{number}", folder / f"pair{number + 1}")
    (folder / "link3").symlink_to("folder3")
    for name in ("timed", "timed2"):
        (folder / name).symlink_to("a.txt")
    for name in ("pipe", "pipe2"):
        os.mkfifo(folder / name)
    for name in ("sparse.bin", "sparse2.bin"):
        with (folder / name).open("wb") as file:
            file.truncate(8 << 20)
    with suppress(OSError):
        for name in ("marked", "marked2"):
            os.setxattr(folder / name, "user.note", b"1")
        (folder / "marks").touch()
    with sqlite3.connect(folder / "runs.db") as database:
        database.execute("create table t(x)")
    database.close()
    for number, path in enumerate(sorted(folder.rglob("*"), key=lambda one: -len(one.parts))):
        os.utime(path, (1000 + number, 2000 + number), follow_symlinks=False)
    os.utime(folder, (5, 6))
    return folder


def snapshot(folder, *, names=True):
    """Of each path: kind, mode, time, owner, bytes or what a link names, marks, whether it takes room; and how many names the file has."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        facts = path.lstat()
        text = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        mine = (stat.S_IFMT(facts.st_mode), stat.S_IMODE(facts.st_mode), facts.st_mtime_ns, text, facts.st_uid)
        mine += (
            facts.st_nlink if names or path.is_dir() else 0,
            facts.st_blocks * 512 > 1 << 20,
            tuple(os.listxattr(path, follow_symlinks=False)),
        )
        found[str(path.relative_to(folder))] = mine
    return found


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project and another folder, neither in TMPDIR."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept.txt").write_text("old")
    (other / "log.txt").write_text("old")
    return make(tmp_path / "project"), other, tmp_path / "tmp"


@contextmanager
def viewed(kind, *roots, **options):
    try:
        with private_view([str(one) for one in roots], kind=kind, **options) as view:
            assert view.kind == kind
            yield view
    except NoViewError as error:
        pytest.skip(f"not on this machine: {error.message}")


@pytest.mark.parametrize("kind", [*KINDS, "undo from memory"])
def test_every_way_to_write_leaves_all_as_it_was(place, kind, monkeypatch, request):
    project, other, temporary = place
    names = kind != "undo from memory"
    if not names:  # what is kept of files is on another file system
        if not os.access("/dev/shm", os.W_OK):
            pytest.skip("no /dev/shm")
        kind, temporary = "undo", Path(tempfile.mkdtemp(dir="/dev/shm", prefix="dynadiag-test-"))
        request.addfinalizer(lambda: shutil.rmtree(temporary))
        monkeypatch.setenv("TMPDIR", str(temporary))
        monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before, before_other = snapshot(project, names=names), snapshot(other)
    program = PROGRAM + "".join(f"print({name!r}, flush=True)\n{code}\n" for name, code in WAYS.items())
    with viewed(kind, project) as view:
        command = command_in(view, [sys.executable, "-c", program, str(project), str(other), str(temporary)])
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.split()) == (0, ["True", *WAYS]), done.stderr
        (temporary / "out.pt").unlink()
        assert {Path(one).name for one in touched(view)["dropped"]} & {"a.txt", "log.csv", "best.pt"}
        assert "network" not in touched(view)
        assert snapshot(project, names=names) == before, "while the view still lasts"
        assert list(Path(view.undo).glob("view-*")) == []
    assert snapshot(project, names=names) == before
    assert snapshot(other) == before_other
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("who", ["the run", "all of it"])
def test_who_is_killed_in_the_middle_leaves_all_as_it_was(place, kind, who):
    project, other, temporary = place
    before = snapshot(project)
    code = f"import os, shutil, time; open({str(project / 'best.pt')!r}, 'w').write('new'); os.unlink('a.txt'); shutil.rmtree('tree')"
    code += "; os.mkdir('made'); print('x', flush=True); time.sleep(600)"
    owner = (
        "import os, subprocess, sys\nfrom dynadiag.private_view.choosing import command_in, private_view\n"
        f"with private_view([{str(project)!r}], kind={kind!r}) as view:\n"
        f"    subprocess.run(command_in(view, [sys.executable, '-c', {code!r}]), cwd={str(project)!r}, process_group=0)\n"
        "print('back', flush=True)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with viewed(kind, project):
        pass
    with subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "x\n"
        (started,) = _children(process.pid)
        if who == "all of it":
            process.kill()
            process.wait()
        os.killpg(started, signal.SIGKILL)
        if who == "the run":
            assert process.stdout.readline() == "back\n"
    _until_gone(started)
    assert kind != "overlay" or snapshot(project) == before
    recovery.recover_dead(process.pid)
    assert snapshot(project) == before
    assert list(temporary.glob("dynadiag-undo-*")) == []


def _children(pid):
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _until_gone(group):
    for _ in range(500):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)


def test_what_runs_together_is_not_put_back_by_another(place):
    """Where a run is watched, its files are its own matter until it ends."""
    project, _, _ = place
    with viewed("undo", project) as view:
        store = Path(view.undo) / "view-x"
        (store / "files").mkdir(parents=True)
        with recovery.held(store):
            assert recovery.recover(Path(view.undo)) == []
            assert store.is_dir()
        recovery.recover(Path(view.undo))
        assert not store.exists()


FAILING_CALLS = """
import contextlib, os, sys
for code in (
    "os.makedirs(OTHER, exist_ok=True)", "os.mkdir(OTHER)", "os.mknod(OTHER + '/log.txt')", "os.symlink('x', OTHER)", "os.rmdir(OTHER)",
    "os.link('a.txt', OTHER + '/log.txt')", "os.unlink(OTHER)", "os.open(OTHER + '/log.txt', os.O_CREAT | os.O_EXCL | os.O_WRONLY)",
):
    with contextlib.suppress(OSError):
        exec(code, {"os": os, "OTHER": sys.argv[1]})
print("called", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_can_only_fail_puts_nothing_back(place, kind):
    """A program that makes sure of a folder (`exist_ok=True`) has changed nothing in it; what others write there meanwhile is theirs."""
    project, other, _ = place
    with viewed(kind, project) as view:
        command = command_in(view, [sys.executable, "-c", FAILING_CALLS, str(other)])
        with subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "called\n"
            (other / "log.txt").write_text("what another program wrote meanwhile")
            process.communicate("\n")
    assert (other / "log.txt").read_text() == "what another program wrote meanwhile"
    assert sorted(path.name for path in other.iterdir()) == ["kept.txt", "log.txt"]


def test_what_files_were_is_not_deleted_while_a_run_goes_on(place):
    project, _, _ = place
    before = snapshot(project)
    code = "import sys, os; open('a.txt', 'w').write('new'); os.unlink('gone.txt'); print('x', flush=True); sys.stdin.read()"
    with viewed("undo", project) as view:
        command = command_in(view, [sys.executable, "-c", code])
        with subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"x\n"
            assert recovery.discard(Path(view.undo), patience_s=0.1) == []
        assert snapshot(project) == before


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("kind", KINDS)
def test_runs_at_the_same_time_leave_all_as_it_was(place, kind, order):
    """In copies they work in the same files, and the last one puts them back."""
    project, other, _ = place
    before, before_other = snapshot(project), snapshot(other)
    code = (
        "import os, shutil, sys\nname, other = sys.argv[1:]\nos.makedirs('made/deep', exist_ok=True)\n"
        "for path in ('best.pt', 'made/x', 'made/deep/' + name, other + '/kept.txt'): open(path, 'w').write(name * 30)\n"
        "open('log.csv', 'a').write(name)\nos.chmod('folder2', 0o700)\nshutil.rmtree('tree', ignore_errors=True)\nprint('x', flush=True)\n"
        "sys.stdin.read()\nopen('gone.txt', 'w').write(name)\nopen('made/last', 'w').write(name)"
    )
    with viewed(kind, project) as view:
        runs = {}
        for name in ("a", "b"):
            command = command_in(view, [sys.executable, "-c", code, name, str(other)])
            runs[name] = subprocess.Popen(command, cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert runs[name].stdout.readline() == b"x\n"
        for name in order:
            runs[name].communicate()
            assert runs[name].returncode == 0
        assert snapshot(project) == before
        assert list(Path(view.undo).glob("view-*")) == []
    assert snapshot(other) == before_other


@pytest.mark.parametrize("kind", KINDS)
def test_passed_folders_are_written_for_real(place, kind):
    project, _, _ = place
    (project / "dynadiag-runs" / "0001").mkdir(parents=True)
    with viewed(kind, project, passed=[project / "dynadiag-runs" / "0001"]) as view:
        code = "open('dynadiag-runs/0001/log', 'w').write('kept'); open('dynadiag-runs/latest', 'w').write('dropped')"
        subprocess.run(command_in(view, [sys.executable, "-c", code]), cwd=project, check=True)
    assert (project / "dynadiag-runs/0001/log").read_text() == "kept"
    assert not (project / "dynadiag-runs/latest").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_ends_as_without_a_view(place, kind):
    project, _, _ = place
    with viewed(kind, project) as view:

        def status(code):
            done = subprocess.run(command_in(view, [sys.executable, "-c", code]), cwd=project, capture_output=True, text=True, check=False)
            return done.returncode, done.stdout

        assert status("raise SystemExit(7)")[0] == 7
        assert status("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")[0] == -signal.SIGSEGV
        code = "import os, signal; print(*(signal.getsignal(n) for n in (13, 15, 10)), os.getuid(), os.getcwd())"
        assert status(code) == (0, f"1 0 0 {os.getuid()} {project}\n")
        assert subprocess.run(command_in(view, ["/no/such"]), capture_output=True, check=False).returncode == 127


@pytest.mark.parametrize("kind", KINDS)
def test_connections_are_noted_but_not_those_of_the_program_with_itself(place, kind):
    project, _, _ = place
    mine = "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); u = socket.socket(type=2); "
    code = f"import socket, sys; {mine}u.connect(('127.0.0.1', 53)); socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
    with viewed(kind, project) as view, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        subprocess.run(command_in(view, [sys.executable, "-c", code, str(port)]), cwd=project, check=True)
        assert touched(view).get("network") == [f"127.0.0.1:{port}"]
        apart = Apart(view=view)
        with pytest.raises(UsageError, match=f"connects to 127.0.0.1:{port}: .*--yes"):
            apart.agree()
        Apart(view=view, agreed=True).agree()
        questions = []
        asked = Apart(view=view, ask=lambda text: not questions.append(text))
        asked.agree()
        asked.and_passed(project).agree()
        assert len(questions) == 1
        with pytest.raises(UsageError, match="nothing was tried"):
            Apart(view=view, ask=lambda text: False).agree()


def test_a_copy_that_takes_more_room_than_there_is_is_refused(place):
    project, _, _ = place
    (project / "large.bin").write_bytes(b"x" * 5000)
    with viewed("undo", project) as view:
        small = View(**{**json.loads(view.dumps()), "limit_bytes": 1000, "roots": view.roots, "passed": view.passed})
        code = "open('large.bin', 'a').write('fits'); open('large.bin', 'r+b')"
        done = subprocess.run(command_in(small, [sys.executable, "-c", code]), cwd=project, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            pytest.skip("the file system shares the bytes of copies")
        assert "No space left" in done.stderr
        with pytest.raises(UsageError, match=r"large\.bin was to be written, and there is no room"):
            Apart(view=small).agree()
    assert (project / "large.bin").read_bytes() == b"x" * 5000


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
@pytest.mark.parametrize("kind", KINDS)
def test_a_user_without_rights_has_a_view_too(place, kind):
    project, other, temporary = place
    for path in (project, *project.rglob("*"), other, *other.rglob("*"), temporary):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    for path in temporary.parents:
        if not path.stat().st_mode & stat.S_IXOTH and path != Path("/"):
            path.chmod(path.stat().st_mode | stat.S_IXOTH)
    before, before_other = snapshot(project), snapshot(other)
    undo = temporary / "undo"
    view = View(
        kind=kind, roots=(str(project),), passed=(str(temporary),), undo=str(undo), touched=str(undo / "touched"), limit_bytes=1 << 30
    )
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            allow_to_be_read()  # as after `execve`
            undo.mkdir()
            ended = enter(view)
            if ended is not None:
                os._exit(ended.follow())
            os.chdir(project)
            words = {"HERE": str(project), "OTHER": str(other), "TMP": str(temporary), "MARKED": (project / "marks").exists()}
            words |= {"libc": ctypes.CDLL(None), "move": os.rename}
            exec("import mmap, os, pathlib, shutil, socket, sqlite3, threading\n" + "\n".join(WAYS.values()), words)
            status = 0
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as said:
        why = said.read()
    status = os.waitpid(pid, 0)[1]
    if "unshare" in why or "mount" in why or "seccomp" in why:
        pytest.skip(why)
    assert (status, why) == (0, "")
    assert snapshot(project) == before
    assert snapshot(other) == before_other
    assert list(undo.glob("view-*")) == []


def test_files_of_others_are_not_for_an_overlay_of_a_user_namespace(tmp_path):
    (tmp_path / "a").touch()
    overlay._check_owners([str(tmp_path)])
    if os.geteuid() == 0:
        os.chown(tmp_path / "a", 0, 12345)
        with pytest.raises(Exception, match="a belongs to another user or group"):
            overlay._check_owners([str(tmp_path)])


def test_the_project_and_the_folder_of_now_are_what_is_kept_apart(tmp_path):
    app, runs = tmp_path.resolve() / "app", tmp_path.resolve() / "runs"
    (app / "src").mkdir(parents=True)
    (tmp_path / "link").symlink_to("app")
    assert roots_of(tmp_path / "link", runs) == (str(app), str(runs))
    assert roots_of(app, app / "src") == roots_of(None, app) == (str(app),)
    assert roots_of(app, tmp_path) == (str(tmp_path.resolve()),)


def test_a_machine_without_either_is_refused_in_one_line(place, monkeypatch):
    project, _, _ = place
    monkeypatch.setattr("dynadiag.private_view.choosing._probed", lambda view: {"overlay": "not permitted", "watch": "no such call"})
    with pytest.raises(NoViewError, match=r"overlay: not permitted; undo: no such call"), private_view([str(project)]):
        pass


def test_what_somebody_else_puts_into_a_new_folder_stays(place):
    project, _, _ = place
    code = "import os, sys; os.mkdir('made'); open('made/ours', 'w').write('1'); print('x', flush=True); sys.stdin.readline()"
    with (
        viewed("undo", project) as view,
        subprocess.Popen(
            command_in(view, [sys.executable, "-c", code]), cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout.readline() == "x\n"
        (project / "made" / "theirs").write_text("precious")
        process.communicate("\n")
    assert [path.name for path in (project / "made").iterdir()] == ["theirs"]


def test_who_comes_next_puts_nothing_back_of_what_was_killed_as_a_whole(place, capsys):
    """Somebody may have gone on with the files; where the copies are is said once."""
    project, _, temporary = place
    owner = (
        "import os, sys\nfrom dynadiag.private_view.choosing import command_in, private_view\nimport subprocess\n"
        f"with private_view([{str(project)!r}], kind='undo') as view:\n"
        "    subprocess.run(command_in(view, [sys.executable, '-c', \"open('a.txt', 'w').write('new'); print('x', flush=True); "
        f'import time; time.sleep(600)"]), cwd={str(project)!r})\n'
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with viewed("undo", project):
        pass
    with subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True, env=environment, process_group=0) as process:
        assert process.stdout.readline() == "x\n"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    _until_gone(process.pid)
    (project / "a.txt").write_text("precious")
    for _ in range(2):
        with private_view([str(project)], kind="undo"):
            pass
    (kept,) = temporary.glob("dynadiag-before-*")
    assert (project / "a.txt").read_text() == "precious"
    assert capsys.readouterr().err.count(f"`dynadiag runs --put-back {kept}` puts it back") == 1
    assert [path.read_text() for path in kept.glob("view-*/files/0*")] == ["a" * 9]
    assert changed_in(kept) == [str(project / "a.txt")] and (project / "a.txt").read_text() == "precious"
    assert put_back_kept(kept) == [] and (project / "a.txt").read_text() == "a" * 9 and not kept.exists()


def test_only_folders_of_ours_are_put_back_from(tmp_path):
    for name, mode in (("other", 0o700), ("dynadiag-before-12345678", 0o777)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
        with pytest.raises(UsageError, match="no folder of yours"):
            put_back_kept(tmp_path / name)
    (tmp_path / "dynadiag-before-87654321").symlink_to(tmp_path / "other")
    with pytest.raises(UsageError, match="no folder of yours"):
        changed_in(tmp_path / "dynadiag-before-87654321")
    with pytest.raises(UsageError, match="cannot be read"):
        changed_in(tmp_path / "missing")


def test_two_do_not_put_back_files_of_one_folder_at_once(place):
    project, _, _ = place
    with viewed("undo", project), viewed("undo", project):
        code = (
            "from dynadiag.errors import UsageError\nfrom dynadiag.private_view.choosing import private_view\n"
            f"try:\n    with private_view([{str(project)!r}], kind='undo'): pass\nexcept UsageError as error: print(error.message)"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == f"another dynadiag runs a program in {project} and puts its files back: wait until it has ended\n"


def test_two_dynadiags_that_write_to_the_same_other_folder_leave_it_as_it_was(place):
    project, other, temporary = place
    second = make(temporary.parent / "second")
    before = snapshot(other)
    code = "import os, sys\nos.chdir(sys.argv[1])\nopen('log.txt', 'a').write('x'); open('new.txt', 'a').write('x')\n"
    code += "open('t', 'w').write('new'); os.replace('t', 'kept.txt'); print('x', flush=True); sys.stdin.read()"
    with viewed("undo", project) as one_view, viewed("undo", second) as other_view:
        runs = []
        for view in (one_view, other_view):
            command = command_in(view, [sys.executable, "-c", code, str(other)])
            runs.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert runs[-1].stdout.readline() == b"x\n"
        for run in runs:
            run.communicate()
    assert snapshot(other) == before


@pytest.mark.parametrize("around", [True, False])
def test_two_do_not_put_back_files_of_one_folder_in_the_other(place, around):
    project, _, _ = place
    ours, theirs = (project.parent, project) if around else (project, project.parent)
    with viewed("undo", ours):
        code = f"from dynadiag.private_view.choosing import private_view\nwith private_view([{str(theirs)!r}], kind='undo'): pass"
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "another dynadiag runs a program in" in ran.stderr


def test_a_file_that_another_program_writes_is_not_changed(place):
    project, _, _ = place
    code = "open('gone.txt', 'w').close()\ntry: open('log.csv', 'a')\nexcept OSError as error: print(error.strerror)"
    with viewed("undo", project) as view, (project / "log.csv").open("a") as log:
        ran = subprocess.run(command_in(view, [sys.executable, "-c", code]), cwd=project, capture_output=True, text=True, check=True)
        log.write("mine\n")
        log.flush()
        with pytest.raises(UsageError, match=r"log\.csv \(.*, process \d+\) was to be written: that program writes to it too"):
            Apart(view=view).agree()
    assert ran.stdout == "Device or resource busy\n"
    assert (project / "log.csv").read_text() == "first\nmine\n"


def test_a_file_that_another_program_appends_to_is_the_same_one_after_it_was_replaced(place):
    project, _, _ = place
    code = "import os; open('log.new', 'w').write('anew'); os.replace('log.new', 'log.csv'); os.unlink('log2.csv')"
    with viewed("undo", project) as view, (project / "log.csv").open("a") as log, (project / "log2.csv").open("a") as log2:
        subprocess.run(command_in(view, [sys.executable, "-c", code]), cwd=project, check=True)
        for stream in (log, log2):
            stream.write("mine\n")
    assert (project / "log.csv").read_text() == (project / "log2.csv").read_text() == "first\nmine\n"


def test_a_file_of_which_no_copy_can_be_kept_is_not_changed(place, monkeypatch):
    project, _, temporary = place

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Undo, "_copied", refuse)
    with pytest.raises(PermissionError):
        Undo(temporary / "files", 1 << 20).save(str(project / "a.txt"), "content")
