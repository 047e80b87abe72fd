"""The rows of sweeps as tables: SQL by DuckDB, ready-made views, and the Parquet file of a sweep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dynadiag.errors import OutputError, UsageError
from dynadiag.files import write_inside
from dynadiag.scratch import scratch
from dynadiag.sweep.rows import JOURNAL, WELL, TaskRow

PARQUET = "rows.parquet"
_SHORT = "regexp_replace(finding.file, '^.*/(site|dist)-packages/', '')"
VIEWS = {
    "status": "SELECT subject, arm, verb, status, break_sites, recompiles, fallbacks, compiled_share, verdict, reason"
    " FROM rows ORDER BY ALL",
    "totals": "SELECT arm, verb, count(*) AS tasks, count(*) FILTER (status = 'done') AS done, count(*) FILTER (status = 'skipped') AS"
    f" skipped, count(*) FILTER (status NOT IN {WELL}) AS failed, count(*) FILTER (break_sites > 0) AS with_breaks,"
    " sum(break_sites) AS break_sites, sum(recompiles) AS recompiles, round(sum(cpu_s), 1) AS cpu_s FROM rows GROUP BY ALL ORDER BY ALL",
    "failures": "SELECT status, reason, count(*) AS tasks, list(DISTINCT subject)[:5] AS subjects FROM rows WHERE status NOT IN"
    f" {WELL} GROUP BY ALL ORDER BY tasks DESC, status, reason",
    "codes": "SELECT finding.code AS code, min(finding.title) AS title, count(*) AS findings, count(DISTINCT subject) AS subjects"
    " FROM rows, unnest(findings) AS each(finding) GROUP BY ALL ORDER BY subjects DESC, findings DESC, code",
    "places": f"SELECT {_SHORT} AS file, finding.line AS line, finding.code AS code, count(DISTINCT subject) AS subjects,"
    " list(DISTINCT subject)[:5] AS some FROM rows, unnest(findings) AS each(finding)"
    " WHERE finding.file IS NOT NULL GROUP BY ALL ORDER BY subjects DESC, file, line, code",
    "costs": "SELECT finding.unit AS unit, finding.cost AS cost, subject, arm, finding.code AS code,"
    f" {_SHORT} AS file,"
    " finding.line AS line FROM rows, unnest(findings) AS each(finding) WHERE finding.cost IS NOT NULL"
    " ORDER BY unit = 'ms per call' DESC, unit, cost DESC, subject, arm, code, file, line",
    "slowest": "SELECT subject, arm, compile_s, cpu_s, memory_mb FROM rows WHERE compile_s IS NOT NULL"
    " ORDER BY compile_s DESC, subject, arm",
    "regressed": "SELECT subject, arm, verb, old_torch, torch, old_status, status, old_breaks, break_sites, old_recompiles, recompiles"
    " FROM (SELECT *, lag(torch) OVER nights AS old_torch, lag(status) OVER nights AS old_status,"
    " lag(break_sites) OVER nights AS old_breaks, lag(recompiles) OVER nights AS old_recompiles, lead(key) OVER nights AS later FROM rows"
    " WINDOW nights AS (PARTITION BY subject, arm, verb ORDER BY started_at)) WHERE later IS NULL AND old_status IS NOT NULL AND"
    f" ((status NOT IN {WELL} AND old_status IN {WELL}) OR break_sites > old_breaks OR recompiles > old_recompiles) ORDER BY ALL",
}
"""Ready-made views by name."""
_TYPES: dict[Any, str] = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", dict: "JSON"}
_LONGEST_ROW = 256 << 20


@dataclass(frozen=True)
class Table:
    """What a query gives: the names of its columns, and its rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query(rows: Sequence[TaskRow], sql: str) -> Table:
    """What the SQL, or the view of that name, gives of the table `rows` and the views. The SQL reaches no file and no network.

    Raises UsageError without DuckDB, and for SQL that DuckDB does not take.
    """
    connection = _connection(rows)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    try:
        found = connection.execute(f"SELECT * FROM {sql}" if sql in VIEWS else sql)
        columns = tuple(str(item[0]) for item in found.description or ())
        return Table(columns, tuple(found.fetchall()) if columns else ())
    except _duckdb().Error as error:
        raise UsageError(f"the query failed: {' '.join(str(error).split())[:500]}") from None


def write_parquet(rows: Sequence[TaskRow], folder: Path) -> Path | None:
    """Write the rows as `rows.parquet` in the folder; None where DuckDB is not installed. Raises OutputError."""
    try:
        connection = _connection(rows)
    except UsageError:
        return None
    with scratch("parquet") as there:
        try:
            connection.execute(f"COPY rows TO '{str(there / PARQUET).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")
            write_inside(folder, PARQUET, (there / PARQUET).read_bytes())
        except (OSError, _duckdb().Error) as error:
            raise OutputError(f"{folder / PARQUET} cannot be written: {error}") from None
    return folder / PARQUET


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise UsageError("a sweep's rows are queried with DuckDB: install dynadiag[sweep]") from None
    return duckdb


def _connection(rows: Sequence[TaskRow]) -> Any:
    """A database in memory with the table `rows` and the views."""
    connection = _duckdb().connect(":memory:")
    with scratch("query") as there:
        journal = write_inside(there, JOURNAL, (json.dumps(asdict(row)) + "\n" for row in rows))
        spec = "{" + ", ".join(f"'{name}': '{_sql_type(hint)}'" for name, hint in get_type_hints(TaskRow).items()) + "}"
        connection.execute(
            "CREATE TABLE rows AS SELECT * FROM"
            f" read_json(?, format = 'newline_delimited', columns = {spec}, maximum_object_size = {_LONGEST_ROW})",
            [str(journal)],
        )
    for name, sql in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {sql}")
    return connection


def _sql_type(hint: Any) -> str:
    """The type of a column that holds values of a Python type."""
    if is_dataclass(hint):
        return f"STRUCT({', '.join(f'{name} {_sql_type(inner)}' for name, inner in get_type_hints(hint).items())})"
    origin, parts = get_origin(hint), get_args(hint)
    if origin is tuple:
        return f"{_sql_type(parts[0])}[]"
    if origin is Literal:
        return _TYPES[str]
    kinds = [part for part in parts if part is not type(None)] if origin in (Union, UnionType) else []
    return _sql_type(float if float in kinds else kinds[0]) if kinds else _TYPES[origin or hint]
