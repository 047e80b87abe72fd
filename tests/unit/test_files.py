"""Files are written without following links, whole or not at all, and private; what is no regular file is not waited for."""

import os
import stat
import threading

import pytest

from dynadiag.files import extended, make_folder_inside, new_file, read_small, remove_inside, write_file, write_inside


@pytest.fixture
def places(tmp_path):
    """A run directory, and a folder and a file outside of it that must stay as they are."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    run.mkdir(), outside.mkdir()
    victim = outside / "victim"
    victim.write_text("precious")
    yield run, outside, victim
    assert victim.read_text() == "precious" and [item.name for item in outside.iterdir()] == ["victim"]


def test_a_link_in_place_of_the_file_is_replaced(places):
    run, _, victim = places
    (run / "report.md").symlink_to(victim)
    assert write_inside(run, "report.md", "new") == run / "report.md"
    assert (run / "report.md").read_text() == "new" and not (run / "report.md").is_symlink()
    assert [item.name for item in run.iterdir()] == ["report.md"]


@pytest.mark.parametrize("name", [".report.md.part", ".report.json.part", ".parity.json.part", "dynadiag-run.json.tmp", "report.md.tmp"])
def test_a_link_where_a_half_written_file_used_to_be_is_left_alone(places, name):
    run, _, victim = places
    (run / name).symlink_to(victim)
    write_inside(run, "report.md", "new")
    assert (run / "report.md").read_text() == "new"


@pytest.mark.parametrize("act", [lambda run: write_inside(run, "graphs/x.svg", "new"), lambda run: make_folder_inside(run, "graphs/deep")])
def test_a_linked_folder_is_refused_in_words(places, act):
    run, outside, _ = places
    (run / "graphs").symlink_to(outside)
    with pytest.raises(OSError, match="it is a link, which is not followed"):
        act(run)


def test_nothing_is_removed_behind_a_linked_folder(places):
    run, outside, _ = places
    (run / "graphs").symlink_to(outside)
    with pytest.raises(OSError, match="it is a link"):
        remove_inside(run, "graphs", lambda name: True)


def test_a_folder_that_becomes_a_link_while_we_write_changes_nothing(places):
    run, outside, victim = places
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            try:
                os.rename(run / "graphs", run / "real")
                (run / "graphs").symlink_to(outside)
                (run / "graphs").unlink()
                os.rename(run / "real", run / "graphs")
            except OSError:
                continue

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            try:
                write_inside(run, "graphs/victim", "new")
                remove_inside(run, "graphs", lambda name: name == "victim")
            except OSError:
                continue
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("name", ["../victim", "a/../../victim", "/tmp/x", "..", "", "a/.."])
def test_a_name_never_leads_out_of_the_folder(places, name):
    with pytest.raises((OSError, ValueError)):
        write_inside(places[0], name, "new")


def test_what_is_written_is_private_and_folders_too(places):
    run, *_ = places
    write_inside(run, "graphs/x.svg", "text \ud800")
    assert stat.S_IMODE((run / "graphs" / "x.svg").stat().st_mode) == 0o600
    assert stat.S_IMODE((run / "graphs").stat().st_mode) == 0o700
    assert (run / "graphs" / "x.svg").read_bytes() == b"text \\ud800"


def test_a_write_that_fails_leaves_nothing_behind(places, monkeypatch):
    run, *_ = places
    monkeypatch.setattr(os, "replace", lambda *args, **options: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_inside(run, "report.md", "new")
    assert list(run.iterdir()) == []


def test_a_text_in_pieces_is_written_whole_or_not_at_all(places):
    run, *_ = places
    write_inside(run, "report.json", iter(("one, ", "two \ud800")))

    def failing():
        yield "half"
        raise ValueError("a renderer's error")

    for write in (lambda: write_inside(run, "report.json", failing()), lambda: write_file(run / "report.json", failing())):
        with pytest.raises(ValueError, match="a renderer's"):
            write()
    assert [(item.name, item.read_bytes()) for item in run.iterdir()] == [("report.json", b"one, two \\ud800")]


def test_a_file_that_the_user_named_may_be_a_link_or_a_pipe(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    write_file(tmp_path / "fresh", "new")
    assert (tmp_path / "fresh").read_text() == "new"
    reader, writer = os.pipe()
    write_file(f"/dev/fd/{writer}", "through")
    assert os.read(reader, 100) == b"through"
    write_file("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_only_regular_files_are_read_and_none_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "file").write_text("12345")
    for name in ("pipe", "link", "."):
        with pytest.raises(OSError):
            read_small(tmp_path / name, 10)
    with pytest.raises(OSError, match="regular"):
        read_small("/dev/zero", 10)
    assert read_small(tmp_path / "file", 3) == b"123"


def test_a_stream_has_its_name_when_it_is_whole(places):
    run, _, victim = places
    (run / "inputs.pt").symlink_to(victim)
    (run / "inputs.pt.part").symlink_to(victim)
    with new_file(run, "inputs.pt") as stream:
        stream.write(b"new")
        assert (run / "inputs.pt").is_symlink()
    assert (run / "inputs.pt").read_bytes() == b"new" and not (run / "inputs.pt").is_symlink()
    assert stat.S_IMODE((run / "inputs.pt").stat().st_mode) == 0o600
    with pytest.raises(KeyError), new_file(run, "inputs.pt") as stream:
        stream.write(b"half")
        raise KeyError
    assert (run / "inputs.pt").read_bytes() == b"new" and len(list(run.iterdir())) == 2


def test_a_file_that_grows_is_continued_where_it_was_whole(places):
    run, _, _ = places
    with os.fdopen(extended(run / "journal", keep_bytes=0), "w") as file:
        file.write("one\ntwo\nhal")
    with os.fdopen(extended(run / "journal", keep_bytes=8), "w") as file:
        file.write("three\n")
    with os.fdopen(extended(run / "journal"), "w") as file:
        file.write("four\n")
    assert (run / "journal").read_text() == "one\ntwo\nthree\nfour\n"
    assert stat.S_IMODE((run / "journal").stat().st_mode) == 0o600


def test_what_grows_is_no_link_no_pipe_and_has_one_name(places):
    run, outside, victim = places
    (run / "link").symlink_to(victim)
    (run / "dangling").symlink_to(outside / "new")
    (run / "hard").hardlink_to(victim)
    (run / "folder").mkdir()
    os.mkfifo(run / "pipe")
    linked, named, kind = "it is a link", "another name", "not a regular file"
    for name, why in {"link": linked, "dangling": linked, "hard": named, "folder": "directory", "pipe": kind}.items():
        for keep in (None, 0):
            with pytest.raises(OSError, match=why):
                extended(run / name, keep_bytes=keep)


@pytest.fixture
def usual_mask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_mask")
@pytest.mark.parametrize("mode", [0o600, 0o700, 0o640, 0o755, 0o664])
def test_a_file_that_is_written_anew_keeps_its_mode(tmp_path, mode):
    file = tmp_path / "train.py"
    file.write_text("old, and longer")
    file.chmod(mode)
    write_file(file, "new")
    assert file.read_text() == "new" and stat.S_IMODE(file.stat().st_mode) == mode
    assert os.listdir(tmp_path) == ["train.py"]


@pytest.mark.usefixtures("usual_mask")
def test_a_new_file_has_the_permissions_that_files_get(tmp_path):
    write_file(tmp_path / "new", "text")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644


def test_other_names_of_a_file_stay_names_of_it(tmp_path):
    (tmp_path / "a.py").write_text("old, and longer")
    (tmp_path / "a.py").chmod(0o750)
    os.link(tmp_path / "a.py", tmp_path / "b.py")
    write_file(tmp_path / "a.py", ("new ", "text"))
    assert (tmp_path / "b.py").read_text() == "new text" and (tmp_path / "a.py").stat().st_nlink == 2
    assert stat.S_IMODE((tmp_path / "b.py").stat().st_mode) == 0o750
    assert sorted(os.listdir(tmp_path)) == ["a.py", "b.py"]


def test_a_file_with_other_names_is_whole_where_the_text_cannot_be_made_or_has_no_room(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("old")
    os.link(tmp_path / "a.py", tmp_path / "b.py")

    def failing():
        yield "half"
        raise ValueError("a renderer's error")

    with pytest.raises(ValueError, match="a renderer's"):
        write_file(tmp_path / "a.py", failing())
    monkeypatch.setattr(os, "posix_fallocate", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_file(tmp_path / "a.py", "new and longer")
    assert (tmp_path / "a.py").read_text() == "old" and sorted(os.listdir(tmp_path)) == ["a.py", "b.py"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_file_stays_its_owners(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("old")
    os.chown(file, 12345, 23456)
    file.chmod(0o4750)
    write_file(file, "new")
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 23456, 0o4750)


def test_the_owner_of_a_file_that_cannot_be_given_away_stays_too(tmp_path, monkeypatch):
    file = tmp_path / "train.py"
    file.write_text("old")
    before = file.stat().st_ino
    real = os.fstat

    def of_somebody(descriptor):
        found = real(descriptor)
        return found if found.st_ino == before else os.stat_result((*found[:5], found.st_gid + 1, *found[6:10]))

    monkeypatch.setattr(os, "fstat", of_somebody)
    monkeypatch.setattr(os, "fchown", lambda *args: (_ for _ in ()).throw(PermissionError(1, "Operation not permitted")))
    write_file(file, "new")
    assert file.read_text() == "new" and file.stat().st_ino == before


def test_extended_attributes_stay(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("old")
    try:
        os.setxattr(file, "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    write_file(file, "new")
    assert os.getxattr(file, "user.note") == b"mine"


@pytest.mark.parametrize("names", [1, 2])
def test_a_read_only_file_is_written_only_where_that_is_forced(tmp_path, names):
    file = tmp_path / "train.py"
    file.write_text("old")
    for number in range(1, names):
        os.link(file, tmp_path / f"other{number}.py")
    file.chmod(0o444)
    with pytest.raises(OSError, match="it is read-only"):
        write_file(file, "new")
    assert file.read_text() == "old"
    write_file(file, "new", force=True)
    assert file.read_text() == "new" and stat.S_IMODE(file.stat().st_mode) == 0o444 and file.stat().st_nlink == names


def test_a_file_in_a_folder_that_takes_no_new_one_is_written_in_its_place(tmp_path, monkeypatch):
    file = tmp_path / "train.py"
    file.write_text("old, and longer")
    real = os.open

    def refusing(name, flags, *args, **options):
        if flags & os.O_EXCL and "dir_fd" in options:
            raise PermissionError(13, "Permission denied")
        return real(name, flags, *args, **options)

    monkeypatch.setattr(os, "open", refusing)
    write_file(file, "new")
    assert file.read_text() == "new"
