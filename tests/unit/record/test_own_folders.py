"""What is recorded of whose code is whose: `[tool.dynadiag]`, and packages that lie outside of site-packages."""

import json

import pytest
from typer.testing import CliRunner

from dynadiag import trace
from dynadiag.errors import UsageError
from dynadiag.facts.user_frames import is_own_file
from dynadiag.record import RecordOptions, Target, record
from dynadiag.record.packages import apart_from, editable_packages, packages_below, packages_in
from dynadiag.record.project import own_folders, project_of
from dynadiag_cli.app import app


def installed(folder, name, *files, info=True):
    """As `pip install --target` leaves it."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    if info:
        (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
        rows = [*files, f"{name}-1.0.dist-info/RECORD", "../../bin/tool", "__pycache__/x.pyc"]
        (folder / f"{name}-1.0.dist-info" / "RECORD").write_text("".join(f"{row},,\n" for row in rows))
    return folder


def test_a_target_folder_has_the_packages_that_its_dist_info_lists(tmp_path):
    installed(tmp_path, "six", "six.py")
    installed(tmp_path, "lib", "lib/__init__.py", "lib/core.py")
    (tmp_path / "mine.py").touch()
    (tmp_path / "old-2.0.dist-info").mkdir()  # without RECORD
    (tmp_path / "old").mkdir()
    assert sorted(packages_in(str(tmp_path))) == [str(tmp_path / name) for name in ("lib", "old", "six.py")]
    assert packages_in(str(tmp_path / "nowhere")) == packages_in("\0") == []


def test_vendored_packages_are_found_below_a_project_but_not_in_its_environments(tmp_path):
    installed(tmp_path / "src" / "_vendor", "lib", "lib/core.py")
    installed(tmp_path / "env" / "x", "other", "other/core.py")
    (tmp_path / "env" / "pyvenv.cfg").touch()
    installed(tmp_path / ".hidden", "other", "other/core.py")
    installed(tmp_path / "e" / "site-packages", "other", "other/core.py")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert packages_below(str(tmp_path)) == [str(tmp_path / "src" / "_vendor" / "lib")]


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "{}", '{"dir_info": 3}', '{"dir_info": {"editable": true}, "url": "https://x.y/z"}', "[" * 9999]
)
def test_what_no_direct_url_says_is_no_editable_package(tmp_path, text):
    (tmp_path / "lib-1.0.dist-info").mkdir()
    (tmp_path / "lib-1.0.dist-info" / "direct_url.json").write_text(text)
    assert editable_packages([str(tmp_path)], []) == []


def test_an_editable_package_is_a_library_unless_its_own_project_is_run(tmp_path):
    root = tmp_path / "my lib"
    (tmp_path / "lib-1.0.dist-info").mkdir()
    said = {"dir_info": {"editable": True}, "url": root.as_uri()}
    (tmp_path / "lib-1.0.dist-info" / "direct_url.json").write_text(json.dumps(said))
    assert editable_packages([str(tmp_path)], [str(tmp_path / "elsewhere")]) == [str(root)]
    assert editable_packages([str(tmp_path)], [str(root)]) == editable_packages([str(tmp_path)], [str(root / "a.py")]) == []
    assert apart_from(["/a/lib/x.py"], ["/a/lib", "/a/li"]) == ["/a/li"]


def test_own_is_read_from_the_nearest_table_above_the_script(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.dynadiag]\nown = ["src"]\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert own_folders(tmp_path / "a" / "b") == (str(tmp_path / "src"),)
    (tmp_path / "link").symlink_to(tmp_path / "src")
    (tmp_path / "pyproject.toml").write_text('[tool.dynadiag]\nown = ["link"]\n')
    assert own_folders(tmp_path) == (str(tmp_path / "link"), str(tmp_path / "src"))
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.dynadiag]\n")
    assert own_folders(tmp_path / "a" / "b") == ()


@pytest.mark.parametrize("text", ["", "[", "\0", "[tool]\nx = 1\n", "tool = 3\n"])
def test_a_file_that_does_not_speak_of_us_is_not_our_business(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert own_folders(tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[tool.dynadiag]\nown = "src"\n', 'own has to be a list of folders, such as own = ["src"]'),
        ('[tool.dynadiag]\nown = ["src", 3]\n', "own has to be a list of folders"),
        ('[tool.dynadiag]\nown = [""]\n', "own has to be a list of folders"),
        ('[tool.dynadiag]\nown = ["none"]\n', "own names 'none', which is no folder"),
        ("[tool.dynadiag]\nowm = []\n", "has no setting 'owm'; did you mean 'own'?"),
        ("[tool]\ndynadiag = 3\n", "has to be a table"),
        ("[tool.dynadiag\n", "is not valid TOML"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_one_line_and_nothing_runs(tmp_path, monkeypatch, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    (tmp_path / "t.py").write_text("open('ran', 'w')")
    with pytest.raises(UsageError) as error:
        own_folders(tmp_path)
    assert said in error.value.message and "\n" not in error.value.message and error.value.exit_code == 2
    monkeypatch.chdir(tmp_path)
    assert isinstance(CliRunner().invoke(app, ["explain", "t.py"]).exception, UsageError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pyproject.toml", "t.py"]


def test_it_is_recorded_with_the_run_and_read_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    installed(tmp_path / "src" / "_vendor", "lib", "lib/core.py")
    (tmp_path / "pyproject.toml").write_text('[tool.dynadiag]\nown = ["src"]\n')
    (tmp_path / "t.py").write_text("")
    directory = record(Target("script", ("t.py",)), RecordOptions()).directory
    (tmp_path / "pyproject.toml").unlink()
    run = trace.load(directory)
    assert run.info.own == (str(tmp_path / "src"),)
    assert [is_own_file(str(tmp_path / file), run) for file in ("src/a.py", "src/_vendor/lib/core.py", "b.py")] == [True, False, False]
    marker = directory / "dynadiag-run.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"own": [3, None, "/x"], "libraries": {"a": 1}}))
    assert (trace.load(directory).info.own, trace.load(directory).info.libraries) == (("/x",), ())


def test_the_script_itself_is_nobodys_library(tmp_path):
    installed(tmp_path, "lib", "lib/core.py", "lib/run.py")
    assert project_of(tmp_path / "lib" / "run.py").libraries == ()
    assert project_of(tmp_path / "main.py").libraries == (str(tmp_path / "lib"),)
