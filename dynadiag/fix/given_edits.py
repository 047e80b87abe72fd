"""Anybody's edit of a program as texts: of a patch, of the working tree against a git revision, or of one file against another."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dynadiag.changes.edits import patch as patch_of
from dynadiag.errors import EditError, UnreadableInputError, UsageError
from dynadiag.files import read_small
from dynadiag.fix.sources import BOM, text_of
from dynadiag.record.project_root import project_root
from dynadiag.revisions import first_line, run_git
from dynadiag.scratch import scratch

_LARGEST_PATCH = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Edit:
    """`before` and `after` are the texts of the files that differ, by real path; `script` is what runs.

    `root` is the folder that names are relative to.
    """

    script: Path
    root: Path
    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that differ, in the project."""
        return tuple(sorted(str(Path(file).relative_to(self.root)) for file in self.after))

    @property
    def diff(self) -> str:
        """The edit as a unified diff."""
        return patch_of(self.before, self.after, self.root)


def edit_of_patch(patch: Path, script: Path) -> Edit:
    """The files of the script's project with a patch applied, as `git apply` does; nothing in the project changes.

    Names in the patch are relative to the project's folder or to the current one. Raises UnreadableInputError for what is no patch,
    UsageError for one that does not apply or changes more than Python files.
    """
    try:
        content = read_small(patch, _LARGEST_PATCH + 1)
    except OSError as error:
        raise UnreadableInputError(f"cannot read {patch}: {error.strerror or error}") from None
    if len(content) > _LARGEST_PATCH:
        raise UnreadableInputError(f"{patch} is longer than {_LARGEST_PATCH >> 20} MiB: it is no patch of a program")
    root = project_root(script)
    with scratch("prove") as folder:
        names = _names_in(content, folder, patch)
        _check_names(names, patch)
        base = _base_of(names, (root, Path.cwd()), patch)
        before = {name: _text(base / name) for name in names if (base / name).exists()}
        for name, text in before.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8", newline="")
        done = _git(["apply", "--whitespace=nowarn", "-"], folder, content)
        if done.returncode:
            raise UsageError(f"{patch} does not apply to {base}: {_first_line(done.stderr)}")
        gone = next((name for name in names if not (folder / name).is_file()), None)
        if gone is not None:
            raise UsageError(f"{patch} deletes or renames {gone}: prove compares programs whose files stay")
        after = {name: _text(folder / name) for name in names}
    paths = {name: os.path.realpath(base / name) for name in names}
    return _edit(script, root, {paths[name]: text for name, text in before.items()}, {paths[name]: text for name, text in after.items()})


def edit_since_revision(revision: str, script: Path) -> Edit:
    """What the working tree has changed since a git revision. Raises UsageError where git or the revision is not there."""
    root = project_root(script)
    if revision.startswith("-"):
        raise UsageError(f"--git {revision}: not a revision")
    listed = _git(["diff", "--name-only", "--no-renames", "--relative", "-z", revision, "--", "*.py"], root)
    if listed.returncode:
        raise UsageError(f"--git {revision}: {_first_line(listed.stderr)}")
    before, after = {}, {}
    for name in filter(None, os.fsdecode(listed.stdout).split("\0")):
        shown = _git(["show", f"{revision}:./{name}"], root)
        file = root / name
        if not file.exists():
            raise UsageError(f"{name} is there in {revision} and not now: prove compares programs whose files stay")
        after[os.path.realpath(file)] = _text(file)
        if not shown.returncode:
            before[os.path.realpath(file)] = _decoded(shown.stdout, f"{name} in {revision}")
    return _edit(script, root, before, after)


def edit_against(old: Path, new: Path) -> Edit:
    """One script instead of another: `new` runs in the place of `old`, with the modules and data beside that."""
    before, after = _text(old), _text(new)
    path = os.path.realpath(old)
    return _edit(old, project_root(old), {path: before}, {path: after})


def _edit(script: Path, root: Path, before: Mapping[str, str], after: Mapping[str, str]) -> Edit:
    changed = {file: text for file, text in after.items() if before.get(file) != text}
    if not changed:
        raise UsageError("both versions are the same: there is nothing to prove")
    outside = next((file for file in changed if not Path(file).is_relative_to(os.path.realpath(root))), None)
    if outside is not None:
        raise UsageError(f"{outside} is not in the script's project, {root}")
    for file, text in changed.items():
        try:
            compile(text, file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            where = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            raise UsageError(f"the edited {Path(file).name} is no Python{where}: {getattr(error, 'msg', error)}") from None
    return Edit(
        script=script, root=Path(os.path.realpath(root)), before={file: before[file] for file in changed if file in before}, after=changed
    )


def _names_in(content: bytes, folder: Path, patch: Path) -> list[str]:
    listed = _git(["apply", "--numstat", "-z", "-"], folder, content)
    names = [row.split("\t", 2)[2] for row in os.fsdecode(listed.stdout).split("\0") if row.count("\t") == 2]
    if listed.returncode or not names or any(not name for name in names):
        raise UnreadableInputError(f"{patch} is no unified diff that git can read: {_first_line(listed.stderr) or 'it changes nothing'}")
    return list(dict.fromkeys(names))


def names_in_patch(content: str) -> list[str]:
    """The files that a patch changes, as it names them. Raises UnreadableInputError for what is no patch."""
    with scratch("prove") as folder:
        return _names_in(content.encode("utf-8", "surrogatepass"), folder, Path("the patch"))


def _check_names(names: Sequence[str], patch: Path) -> None:
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise UsageError(f"{patch} changes {name}, which is outside of the project")
        if Path(name).suffix not in (".py", ".pyw"):
            raise UsageError(f"{patch} changes {name}: prove compares edits of Python files")


def _base_of(names: Sequence[str], folders: Sequence[Path], patch: Path) -> Path:
    """The folder that the names are relative to: the first that has most of them."""
    base = max(folders, key=lambda folder: sum((folder / name).is_file() for name in names))
    if not any((base / name).is_file() for name in names):
        raise UsageError(f"{patch} changes {names[0]}, which is not in {folders[0]}")
    return base


def _text(file: Path) -> str:
    try:
        return text_of(str(file)).removeprefix(BOM)
    except EditError as error:
        raise UnreadableInputError(error.message) from None


def _decoded(content: bytes, title: str) -> str:
    try:
        return content.decode("utf-8").removeprefix(BOM)
    except ValueError:
        raise UnreadableInputError(f"{title} is not UTF-8") from None


def _git(arguments: Sequence[str], folder: Path, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """One call of git. A patch is applied in a folder that is in no repository."""
    variables = {} if given is None else {"GIT_DIR": str(folder / "no-repository"), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    try:
        return run_git(arguments, folder, variables, given=given or b"")
    except OSError:
        raise UsageError("the program git is needed for this and is not on PATH: --against needs none") from None


def _first_line(text: bytes) -> str:
    return first_line(text).removeprefix("error: ").removeprefix("fatal: ")[:200]
