"""A log: steps of episodes in an in-memory DuckDB, with the raw records beside them.

In memory, because a DuckDB file locks other processes out; Parquet is the form at rest.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from .behavior import MOST_STEPS, WorldSource, collect_steps, named_behavior
from .behavior_policies import AnyBehavior
from .database import Database
from .errors import EmptyDataset, InvalidConfig, TraceFormatError
from .importers.raw_text import FileText, RawRecords
from .importers.report import ImportReport
from .importers.trace_schema import write_jsonl
from .schema import (
    COLUMN_NAMES,
    STEPS_ARROW_SCHEMA,
    TEXT_COLUMNS,
    canonical_json,
    short_hash,
)
from .wording import counted

if TYPE_CHECKING:
    from .importers.step_mapping import StepMapping

DATA_DIRECTORY = Path(__file__).resolve().parent.parent / "data"

BUNDLED: dict[str, WorldSource] = {
    "calculator": WorldSource(
        world="calculator",
        behavior=named_behavior("logger")[1],
        behavior_name="logger",
        n_episodes=3000,
        seed=42,
    ),
    "calculator_without_mul": WorldSource(
        world="calculator",
        behavior=named_behavior("logger_without_mul")[1],
        behavior_name="logger_without_mul",
        n_episodes=3000,
        seed=42,
    ),
}
BUNDLED_TITLES = {
    "calculator": "Calculator agent with all its tools",
    "calculator_without_mul": "Calculator agent that never calls mul",
}


class Log:
    """Steps of episodes, queryable; see :mod:`offrl_core.schema` for the columns.

    The steps stay in the Arrow table or Parquet file they came in until somebody asks in SQL.

    Attributes:
        name: what people call it.
        fingerprint: 16 hexadecimal digits that identify the content.
        source: how a world's log was made; None for an imported one, whose truth is unknown.
        report: what was read, what was not, and why.
        n_steps: rows.
    """

    def __init__(
        self,
        steps: pa.Table | parquet.ParquetFile,
        *,
        name: str,
        fingerprint: str,
        source: WorldSource | None,
        report: ImportReport,
        records: RawRecords | pa.Table | Log | None = None,
    ) -> None:
        """Take steps, with the columns of the schema, and the raw records behind them, or the log that holds these."""
        self.name, self.fingerprint, self.source, self.report = name, fingerprint, source, report
        self.lock = threading.Lock()  # guards the making of derived things, see offrl_core.framing
        self.derived: dict[str, Any] = {}  # what framing and dataset know of the steps, by name
        self._loading = threading.Lock()
        self._unloaded: deque[tuple[str, Callable[[], pa.Table | str]]] = deque()
        self._steps: pa.Table | parquet.ParquetFile | None = steps
        self.n_steps: int = steps.num_rows if isinstance(steps, pa.Table) else steps.metadata.num_rows
        if not self.n_steps:
            raise EmptyDataset(f"{name} holds no step, so there is nothing to look at.")
        records = RawRecords.of_table(records) if isinstance(records, pa.Table) else records
        self._records: RawRecords | None = records._records if isinstance(records, Log) else records

    @cached_property
    def _database(self) -> Database:
        return Database()

    @cached_property
    def n_episodes(self) -> int:
        """How many episodes the steps belong to."""
        return len(self.columns("episode_id")["episode_id"].unique())

    def columns(self, *names: str) -> pa.Table:
        """Columns of the steps as they are, without a query; text may come as dictionaries."""
        steps = self._steps
        if isinstance(steps, parquet.ParquetFile):
            with self._loading:  # it isn't made for two readers at once
                return steps.read(list(names), use_threads=False)
        if steps is not None:
            return steps.select(names)
        return self.cursor().sql(f"SELECT {', '.join(names)} FROM steps ORDER BY row").to_arrow_table()

    def define(self, name: str, content: Callable[[], pa.Table | str]) -> None:
        """Give SQL a table (from Arrow) or a view (from a SELECT). It is made when somebody asks in SQL, or never."""
        self._unloaded.append((name, content))

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of one's own to the tables of this log; safe to use beside others."""
        with self._loading:
            cursor = self._database.cursor()
            if self._steps is not None:
                self._load_steps(cursor)
            while self._unloaded:
                name, content = self._unloaded[0]
                _load(cursor, name, content())
                self._unloaded.popleft()
        return cursor

    def _load_steps(self, cursor: duckdb.DuckDBPyConnection) -> None:
        n = 0
        for i, steps in enumerate(_pieces(self._steps)):
            numbered = steps.add_column(0, "row", pa.array(np.arange(n, n + steps.num_rows)))
            _load(cursor, "steps", numbered, append=i > 0)
            n += steps.num_rows
        self._steps = None  # one copy is enough

    def rows(self, sql: str, parameters: list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run trusted SQL and return its rows. SQL of visitors goes through :func:`offrl_core.query.run_query`."""
        return self.cursor().execute(sql, parameters or []).fetchall()

    def frame(self, sql: str, parameters: list[Any] | None = None) -> pd.DataFrame:
        """Run trusted SQL and return a DataFrame."""
        return self.cursor().execute(sql, parameters or []).df()

    def distinct_values(self, column: str, limit: int = 1000) -> list[Any]:
        """Sorted distinct values of a column of ``steps``, at most ``limit``; NULL left out.

        Raises:
            KeyError: there is no such column.
        """
        if column not in COLUMN_NAMES:
            raise KeyError(column)
        return [
            value
            for (value,) in self.rows(
                f"SELECT DISTINCT {column} FROM steps WHERE {column} IS NOT NULL ORDER BY 1 LIMIT {limit:d}"
            )
        ]

    def raw_record(self, source_file: str, record: int) -> str | None:
        """The raw text of one record of the file, where it was kept."""
        return self._records.find(source_file, record) if self._records else None

    def write_parquet(self, path: Path) -> None:
        """Write the steps as Parquet, in upload order; the same log gives the same bytes with the same DuckDB version."""
        steps = "SELECT * EXCLUDE (row) FROM steps ORDER BY upload_order, row"
        self.cursor().execute(f"COPY ({steps}) TO ? (FORMAT parquet, COMPRESSION zstd)", [str(path)])

    def write_jsonl(self, path: Path) -> None:
        """Write the steps as JSON lines in the trace schema; reading them gives the same steps."""
        write_jsonl(self.columns(*COLUMN_NAMES).cast(STEPS_ARROW_SCHEMA), path)

    def __repr__(self) -> str:
        """Counts, not contents."""
        return f"Log({self.name!r}, {self.n_episodes:,} episodes, {self.n_steps:,} steps)"


def _pieces(steps: pa.Table | parquet.ParquetFile | None) -> Iterator[pa.Table]:
    """A table, or a file part by part: in whole it would be in memory twice."""
    if isinstance(steps, parquet.ParquetFile):
        yield from (steps.read_row_group(i, use_threads=False) for i in range(steps.num_row_groups))
    else:
        yield steps


def _load(cursor: duckdb.DuckDBPyConnection, name: str, content: pa.Table | str, *, append: bool = False) -> None:
    if isinstance(content, str):
        cursor.execute(f"CREATE OR REPLACE VIEW {name} AS {content}")
        return
    cursor.register("given", content)
    try:
        cursor.execute(f"INSERT INTO {name} FROM given" if append else f"CREATE OR REPLACE TABLE {name} AS FROM given")
    finally:
        cursor.unregister("given")


def collect(
    world: str,
    behavior: str | AnyBehavior = "logger",
    n_episodes: int = 3000,
    seed: int = 42,
    name: str | None = None,
    *,
    most_steps: int = MOST_STEPS,
) -> Log:
    """Let a logging policy act in a world and keep what it does.

    Args:
        world: name in :data:`offrl_core.worlds.WORLDS`.
        behavior: name among the ``behaviors`` of the world's entry, or a description of your own: see
            :mod:`offrl_core.behavior_policies`.
        n_episodes: episodes to collect, 1 to 1,000,000.
        seed: of the one random generator; the same arguments give the same log.
        name: what people shall call it.
        most_steps: of all episodes together.

    Raises:
        UnknownName: no such world or behavior.
        InvalidConfig: a number is out of its range, or the log would have more steps.
    """
    behavior_name, dials = named_behavior(behavior, world)
    source = WorldSource(world=world, behavior=dials, behavior_name=behavior_name, n_episodes=n_episodes, seed=seed)
    name = name or f"{world}, {behavior_name}, {n_episodes:,} episodes"
    return log_of_source(source, name=name, most_steps=most_steps)


def recollected(source: WorldSource, *, name: str, most_steps: int) -> Log:
    """The log of a source, collected the first time it is asked for; the last few are kept, refusals too.

    Raises:
        InvalidConfig: it would have more steps.
    """
    key = canonical_json([source.to_json(), most_steps])
    with _collecting:
        if key not in _collected:
            while len(_collected) >= MAX_COLLECTED:
                _collected.pop(next(iter(_collected)))
            _collected[key] = _log_or_refusal(source, name, most_steps)
        found = _collected[key]
    if isinstance(found, str):
        raise InvalidConfig(found)
    return found


def _log_or_refusal(source: WorldSource, name: str, most_steps: int) -> Log | str:
    try:
        return log_of_source(source, name=name, most_steps=most_steps)
    except InvalidConfig as error:
        return str(error)


MAX_COLLECTED = 8
_collecting = threading.Lock()
_collected: dict[str, Log | str] = {}


def log_of_source(
    source: WorldSource, *, name: str, steps: parquet.ParquetFile | None = None, most_steps: int = MOST_STEPS
) -> Log:
    """The log that a source describes, collected anew or read from its Parquet file."""
    log = Log(
        steps or collect_steps(source, most_steps=most_steps),
        name=name,
        fingerprint=short_hash(canonical_json(source.to_json())),
        source=source,
        report=ImportReport(format="world", why="made here by a logging policy"),
    )
    log.report.n_episodes, log.report.n_steps = source.n_episodes, log.n_steps
    return log


def bundled_log(name: str) -> Log:
    """One of the logs in ``data/``, checked against its sidecar.

    Raises:
        TraceFormatError: the files are missing or don't belong together.
    """
    path, sidecar_path = DATA_DIRECTORY / f"{name}.parquet", DATA_DIRECTORY / f"{name}.json"
    if name not in BUNDLED or not path.exists() or not sidecar_path.exists():
        raise TraceFormatError(f"The bundled log {name!r} is not in {DATA_DIRECTORY.name}/; make it with `make data`.")
    sidecar = json.loads(sidecar_path.read_text(encoding="utf-8"))
    if sidecar["made_by"] != BUNDLED[name].to_json():
        raise TraceFormatError(
            f"{sidecar_path.name} describes another log than this version of the code; run `make data`."
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sidecar["file_sha256"]:
        raise TraceFormatError(f"{path.name} isn't the file that {sidecar_path.name} describes; run `make data`.")
    steps = parquet.ParquetFile(
        pa.BufferReader(content), read_dictionary=[*TEXT_COLUMNS, "available_tools.list.element"]
    )
    return log_of_source(BUNDLED[name], name=BUNDLED_TITLES[name], steps=steps)


def make_bundled(name: str, directory: Path = DATA_DIRECTORY) -> Path:
    """Make a bundled log anew, Parquet and sidecar, and return the path of the Parquet file."""
    log = log_of_source(BUNDLED[name], name=BUNDLED_TITLES[name])
    path = directory / f"{name}.parquet"
    log.write_parquet(path)
    sidecar = {
        "made_by": BUNDLED[name].to_json(),
        "command": "make data",
        "n_episodes": log.n_episodes,
        "n_steps": log.n_steps,
        "content_sha256": content_hash(log),
        "file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "written_with": {"duckdb": duckdb.__version__},
        "licence": "MIT, as the project",
    }
    text = json.dumps(sidecar, indent=2, ensure_ascii=False) + "\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")
    return path


def content_hash(log: Log) -> str:
    """SHA-256 over all rows in order: equal logs have equal hashes, whatever wrote their files."""
    digest = hashlib.sha256()
    for row in log.rows("SELECT * EXCLUDE (row) FROM steps ORDER BY row"):
        digest.update(canonical_json(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def read_traces(
    *paths: str | Path | Sequence[str | Path],
    contents: Sequence[tuple[str, bytes]] = (),
    format: str | None = None,
    mapping: StepMapping | None = None,
    progress: Callable[[float], None] | None = None,
) -> Log:
    """Read trace files of any known formats into one log.

    Args:
        *paths: files, packed ones among them, or folders, whose files are all taken; one by one, or as a list.
        contents: name and content of further files that don't lie on this machine's disk.
        format: name in :data:`offrl_core.importers.IMPORTERS`, to override what the contents look like.
        mapping: which field means what, for a log of one's own; see :mod:`offrl_core.importers.step_mapping`.
        progress: called with the fraction done.

    Returns:
        The log; ``log.report`` says what was read, what was not, and why.

    Raises:
        TraceFormatError: nothing can be read; the sentence says why.
    """
    from .importers import read_sources

    given = [path for one in paths for path in ([one] if isinstance(one, str | Path) else one)]
    files = [*_files_at(given), *contents]
    imported = read_sources(files, format=format, mapping=mapping, progress=progress)
    first, *others = [name for name, _ in files]
    digest = hashlib.sha256()
    for name, data in files:  # steps say which file they come from, and some formats name episodes after it
        digest.update(short_hash(name).encode())
        digest.update(data.digest() if isinstance(data, FileText) else hashlib.sha256(data).digest())
    how = (format or "") + (mapping.to_json() if mapping else "")
    return Log(
        imported.steps,
        name=f"{first} and {counted(len(others), 'more file')}" if others else first,
        fingerprint=short_hash(digest.hexdigest() + how),
        source=None,
        report=imported.report,
        records=imported.raw,
    )


LARGE_FILE = 2**25  # bytes; a file that is larger stays on the disk while its lines are read


def _files_at(paths: Sequence[str | Path]) -> Iterator[tuple[str, bytes | FileText]]:
    """Name and content of each file; those of a folder in the order of their names, hidden ones left out.

    A folder's pipes, sockets and devices are no files: to read one could take forever.
    """
    if "" in paths:  # as a path it would mean this very folder, and a variable that nobody has set gives it
        raise TraceFormatError("One of the files has no name. Say which file or folder to read.")
    for path in map(Path, paths):
        folder = path if path.is_dir() else path.parent
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            name = file.relative_to(folder)
            is_other = file.exists() and not file.is_file()
            if file != path and (is_other or any(part.startswith(".") for part in name.parts)):
                continue
            try:
                yield name.as_posix(), FileText(file) if file.stat().st_size > LARGE_FILE else file.read_bytes()
            except OSError as error:
                raise TraceFormatError(f"{name} can't be opened: {error.strerror}.") from error
