"""The logs of ranks: digested by several processes, compared, and those chosen that are read in full."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dynadiag.digests.lines import RANK_NAME
from dynadiag.model.digest import Digest, DigestEvent, RankComparison, RankTrouble, rank_numbers
from dynadiag.trace.digest import DistrustError, digests_of, recorded_digest
from dynadiag.trace.rank_groups import compared, main_digests
from dynadiag.trace.sources import OpenLog, shown

if TYPE_CHECKING:
    from concurrent.futures import Future

READ_ALL = 16
"""Up to as many ranks are all read in full."""
_MOST_READ = 64
_MOST_WORKERS = 16
_LEAST_BYTES = 32 << 20  # below, starting workers takes longer than reading
_LARGEST_WORKER_BYTES = 2 << 30
_HEAD_BYTES = 1 << 16
_ALL_DIGESTS_BYTES = 768 << 20
_LARGEST_DIGEST_BYTES = 64 << 20

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RankLogs:
    """`logs` are read in full, in order; `alike` has the digest of each rank that is not, with the log that is read in its place."""

    logs: tuple[Path, ...]
    comparison: RankComparison | None = None
    alike: tuple[tuple[Digest, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Digested:
    """What a worker gives back; `problem` says why the log could not be read, or not to its end."""

    digests: tuple[Digest, ...] = ()
    problem: str | None = None


def usable_processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compare_ranks(logs: Sequence[Path], *, workers: int = 1, progress: Progress | None = None) -> RankLogs:
    """Which of the logs are read in full, and how the ranks compare; the result does not depend on the number of workers.

    Logs without a rank are all read. A log that no worker could digest is read in full, where its error is told.
    """
    ranked = [log for log in logs if _is_ranked(log)]
    if len(ranked) < 2:
        return RankLogs(tuple(logs))
    recorded, doubts = _recorded(ranked)
    results = recorded | _digested([log for log in ranked if log not in recorded], workers, progress)
    found = _compared(logs, ranked, results, doubts)
    full = [log for log in found.logs if log in recorded]
    derived = _digested(full, workers, progress)
    if wrong := [log for log in full if not _agree(recorded[log], derived[log])]:
        doubts |= dict.fromkeys(wrong, "does not agree with its log, so no digest is used here")
        results |= derived | _digested([log for log in recorded if log not in derived], workers, progress)
        return _compared(logs, ranked, results, doubts)
    if unread := len(recorded) - len(full):
        note = f"{unread:,} ranks are compared by the digests that their recorders wrote beside the logs, which are not read"
        return replace(found, notes=(*found.notes, note))
    return found


def _recorded(logs: Sequence[Path]) -> tuple[dict[Path, _Digested], dict[Path, str]]:
    """The digests that recorders wrote, and of those that are not used why."""
    found: dict[Path, _Digested] = {}
    doubts: dict[Path, str] = {}
    known: dict[bytes, tuple[DigestEvent, ...]] = {}
    for log in logs:
        try:
            digest = recorded_digest(log, _room(len(logs)), known)
        except DistrustError as error:
            doubts[log] = str(error)
        except OSError:  # told where the log is read
            continue
        else:
            if digest is not None:
                found[log] = _Digested((digest,))
    return found, doubts


def _agree(recorded: _Digested, derived: _Digested) -> bool:
    """Whether the log of a digest holds what that tells; a program that still runs may have written more since."""
    (told,), made = recorded.digests, derived.digests[:1]
    if not made or made[0].records <= told.records:
        return recorded.digests == derived.digests
    return made[0].events[: len(told.events)] == told.events


def _compared(logs: Sequence[Path], ranked: Sequence[Path], results: Mapping[Path, _Digested], doubts: Mapping[Path, str]) -> RankLogs:
    notes = tuple(
        f"{shown(Path(log.name))} could not be digested: {results[log].problem}" for log in ranked if results[log].problem is not None
    )
    digests = _shared(digest for log in ranked for digest in results[log].digests)
    if left_out := [digest for digest in digests if digest.left_out]:
        least = min(len(digest.events) for digest in left_out)
        notes = (*notes, f"of {len(left_out):,} ranks only the first events are compared ({least:,} or more), and how many they are in all")
    comparison = compared(digests)
    if comparison is None:
        return RankLogs(tuple(logs), notes=notes)
    unread = tuple(log for log in ranked if not results[log].digests)
    if unread:
        comparison = replace(comparison, troubles=(*comparison.troubles, *_unread(unread, results)))
    if doubts:
        comparison = replace(comparison, troubles=(*comparison.troubles, *_distrusted(doubts)))
    if comparison.ranks <= READ_ALL:
        return RankLogs(tuple(logs), replace(comparison, read=comparison.ranks), notes=notes)
    return _chosen(logs, digests, comparison, notes)


def _unread(logs: Iterable[Path], results: Mapping[Path, _Digested]) -> Iterable[RankTrouble]:
    for log in logs:
        name = RANK_NAME.search(log.name)
        why = results[log].problem or "it contains no record of torch.compile"
        yield RankTrouble(kind="unread", ranks=(int(name[1]),) if name else (), text=f"{shown(Path(log.name))} is not compared: {why}.")


def _distrusted(doubts: Mapping[Path, str]) -> Iterable[RankTrouble]:
    by_reason: dict[str, list[Path]] = {}
    for log, reason in doubts.items():
        by_reason.setdefault(reason, []).append(log)
    for reason, logs in by_reason.items():
        names = (RANK_NAME.search(log.name) for log in logs)
        first = f"The digest beside {shown(Path(logs[0].name))}"
        more = f" (and those of {len(logs) - 1:,} more logs)" if len(logs) > 1 else ""
        ranks = tuple(sorted(int(name[1]) for name in names if name))
        yield RankTrouble(kind="digest", ranks=ranks, text=f"{first}{more} {reason}: the log itself is read.")


def _chosen(logs: Sequence[Path], digests: Sequence[Digest], comparison: RankComparison, notes: tuple[str, ...]) -> RankLogs:
    """One rank of each group is read in full; the others stand in the run by their digests."""
    mains, _ = main_digests(digests)
    full = comparison.groups[:_MOST_READ]
    read = {mains[group.representative].log for group in full}
    stands_for = {rank: mains[group.representative].log for group in full for rank in group.ranks}
    alike = tuple((digest, stands_for[rank]) for rank, digest in mains.items() if rank in stands_for and digest.log not in read)
    skipped = {digest.log for digest in digests} - read
    if len(comparison.groups) > _MOST_READ:
        left = sum(len(group.ranks) for group in comparison.groups[_MOST_READ:])
        notes = (*notes, f"{left:,} ranks, each unlike the others, are compared by their digests and not read in full")
    number = len(full)
    apart = [rank for group in comparison.groups[1:] for rank in group.ranks]
    if apart:
        most = f"the largest group of equal ranks ({len(comparison.groups[0].ranks):,})"
        notes = (*notes, f"rank{'s' if len(apart) > 1 else ''} {rank_numbers(apart)} differ{'' if len(apart) > 1 else 's'} from {most}")
    notes = (
        *notes,
        f"{number:,} of {comparison.ranks:,} ranks {'is' if number == 1 else 'are'} read in full, one of each group of equal ranks: "
        "counts and times in this report are theirs",
    )
    chosen = tuple(log for log in logs if str(log) not in skipped)
    return RankLogs(chosen, replace(comparison, read=number), alike, notes)


def _is_ranked(log: Path) -> bool:
    """Whether a log may be one of a rank: by its name, or by its first records."""
    if RANK_NAME.search(log.name):
        return True
    try:
        with OpenLog(log) as stream:
            return b'"rank": ' in stream.read(_HEAD_BYTES)
    except OSError:
        return False


def _shared(digests: Iterable[Digest]) -> list[Digest]:
    """The digests with equal events kept once: thousands of ranks have the same."""
    seen: dict[object, object] = {}
    found = []
    for digest in digests:
        events = tuple(seen.setdefault(event, event) for event in digest.events)
        found.append(replace(digest, events=seen.setdefault(events, events)))  # type: ignore[arg-type]
    return found


def _digested(logs: Sequence[Path], workers: int, progress: Progress | None) -> dict[Path, _Digested]:
    sizes = {log: _size(log) for log in logs}
    total = sum(sizes.values())
    number = min(workers, len(logs), _MOST_WORKERS)
    results: dict[Path, _Digested] = {}
    if number > 1 and total >= _LEAST_BYTES:
        results = _in_workers(logs, number, sizes, progress)
    done = sum(sizes[log] for log in results)
    for log in logs:
        if log not in results:
            results[log] = _digest(str(log), _room(len(logs)))
            done += sizes[log]
            if progress is not None:
                progress(done, total)
    return results


def _in_workers(logs: Sequence[Path], number: int, sizes: Mapping[Path, int], progress: Progress | None) -> dict[Path, _Digested]:
    """Digests made by worker processes. One that dies (out of memory) costs its log alone: each other is tried once more by itself."""
    results: dict[Path, _Digested] = {}
    left = _round(logs, number, results, sizes, progress)
    for log in left:
        if _round([log], 1, results, sizes, progress):  # again in a worker: alone it may have the memory
            results[log] = _Digested(problem="the process that read it died (out of memory?)")
    return results


def _round(
    logs: Sequence[Path], number: int, results: dict[Path, _Digested], sizes: Mapping[Path, int], progress: Progress | None
) -> list[Path]:
    """One pool over the logs, the largest first, so that no worker is left with it at the end; the logs that it did not finish."""
    import multiprocessing  # a twentieth of what `explain` of one log takes
    from concurrent.futures import ProcessPoolExecutor, wait
    from concurrent.futures.process import BrokenProcessPool

    total = sum(sizes.values())
    # Fresh interpreters: a fork would take along the threads and locks of a notebook or a test.
    pool = ProcessPoolExecutor(number, mp_context=multiprocessing.get_context("spawn"), initializer=_bound_memory)
    try:
        futures: dict[Future[_Digested], Path] = {}
        with suppress(BrokenProcessPool):
            for log in sorted(logs, key=lambda path: -sizes[path]):
                futures[pool.submit(_digest, str(log), _room(len(sizes)))] = log
        waiting: set[Future[_Digested]] = set(futures)
        while waiting:
            done, waiting = wait(waiting, return_when="FIRST_COMPLETED")
            for future in done:
                with suppress(BrokenProcessPool):
                    results[futures[future]] = future.result()
            if progress is not None:
                progress(sum(sizes[log] for log in results), total)
    finally:
        pool.shutdown(cancel_futures=True)
    return [log for log in logs if log not in results]


def _bound_memory() -> None:
    """No worker takes the whole machine, whatever a log holds: beyond the bound reading that log is an error."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        bound = _LARGEST_WORKER_BYTES if hard == resource.RLIM_INFINITY else min(hard, _LARGEST_WORKER_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))


def _room(logs: int) -> int:
    """About how many bytes the digests of one log may take, so that those of all fit into memory."""
    return min(_LARGEST_DIGEST_BYTES, _ALL_DIGESTS_BYTES // logs)


def _digest(log: str, room_bytes: int) -> _Digested:
    """Run in a worker: what goes wrong is told, never raised."""
    try:
        return _Digested(*digests_of(log, room_bytes))
    except OSError as error:
        return _Digested(problem=error.strerror or str(error))
    except MemoryError:
        return _Digested(problem=f"it needs more than {_LARGEST_WORKER_BYTES >> 20:,} MB of memory")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
