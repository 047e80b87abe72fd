"""`dynadiag runs`: lists run directories, and removes old ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dynadiag.errors import UsageError
from dynadiag_cli.options import LONGEST_S, AsJson

EXAMPLES = """Examples:

  dynadiag runs

  dynadiag runs --keep 5 --older-than 7
"""


def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that holds run directories.")] = Path("dynadiag-runs"),
    keep: Annotated[int | None, typer.Option("--keep", metavar="N", min=0, help="Delete all but the newest N runs.")] = None,
    older_than_days: Annotated[
        float | None,
        typer.Option("--older-than", metavar="DAYS", min=0, max=LONGEST_S, help="Delete only runs that began more than DAYS days ago."),
    ] = None,
    put_back: Annotated[
        Path | None,
        typer.Option("--put-back", metavar="DIR", help="Restore files that killed runs had changed, from the copies in DIR."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be deleted or restored, and do nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the run directories of a folder, oldest first, or delete old ones; or restore files.

    Nothing is deleted without --keep or --older-than, nor a run that may still go on. Times are UTC. Exit status 5 when there is no run.
    """
    import json
    from dataclasses import asdict

    from dynadiag import runs as library
    from dynadiag.render.sanitise import clean

    if put_back is not None:
        _put_back(put_back, dry_run=dry_run)
        return
    found = library.runs_in(folder)
    deletes = keep is not None or older_than_days is not None
    if dry_run and not deletes:
        raise UsageError("--dry-run needs --keep, --older-than or --put-back")
    chosen = library.to_remove(found, keep=keep, older_than_days=older_than_days) if deletes else found
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in chosen], indent=2, default=str))
    else:
        for run in chosen:
            row = (run.directory.name, f"{run.started_at:%Y-%m-%d %H:%M}", run.status, f"{run.size_bytes / 1e6:.1f} MB", run.command)
            typer.echo("  ".join(clean(part) for part in row))
    if deletes and not dry_run:
        library.remove(chosen, folder)
    if not as_json:
        verb = "" if not deletes else "would be deleted, " if dry_run else "deleted, "
        typer.echo(f"{len(chosen)} of {len(found)} runs: {verb}{sum(run.size_bytes for run in chosen) / 1e6:.1f} MB")


def _put_back(kept: Path, *, dry_run: bool) -> None:
    """Print each path, and make it what it was."""
    from dynadiag.errors import OutputError
    from dynadiag.private_view.recovery import changed_in, put_back_kept
    from dynadiag.render.sanitise import clean

    paths = changed_in(kept)
    for path in paths:
        typer.echo(clean(path))
    failed = [] if dry_run else put_back_kept(kept)
    if failed:
        raise OutputError(f"{len(failed)} of {len(paths)} paths could not be put back, {failed[0]} first; their copies stay in {kept}")
    typer.echo(f"{len(paths)} paths: {'would be ' if dry_run else ''}put back")
