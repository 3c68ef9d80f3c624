"""Questions to Delta tables in SQL, by the engine inside delta-rs: it opens only the files that they need."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from streaming.model.errors import OffsetlakeError

_FILE_GONE: Final = re.compile(r"Object at location .* not found")


class QueryFailedError(OffsetlakeError):
    """The SQL engine could not answer."""


class FilesGoneError(QueryFailedError):
    """Files of the table were removed after it had been opened; a table that is opened again has others."""


def select(sql: str, **tables: DeltaTable) -> pa.Table:
    """Run a query on tables as they stood when they were opened; raises `QueryFailedError`."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder.register(name, table)
    return execute(builder, sql)


def stream(sql: str, **tables: DeltaTable) -> Iterator[pa.Table]:
    """Run a query as `select` does, and yield its rows, some thousands at a time."""
    builder = QueryBuilder()
    for name, table in tables.items():
        builder.register(name, table)
    with _explained():
        for batch in pa.RecordBatchReader.from_stream(builder.execute(sql)):
            yield pa.Table.from_batches([batch])


def execute(builder: QueryBuilder, sql: str) -> pa.Table:
    """Run a query on the tables that are registered; raises `QueryFailedError`."""
    with _explained():
        return pa.RecordBatchReader.from_stream(builder.execute(sql)).read_all()


def rows_of(builder: QueryBuilder, sql: str, *, most_bytes: int) -> pa.Table | None:
    """Run a query as `execute` does; None if its answer takes more memory: it is not read on then."""
    with _explained():
        reader = pa.RecordBatchReader.from_stream(builder.execute(sql))
        batches, held, size = [], set[int](), 0
        for batch in reader:
            batches.append(batch)
            for buffer in _buffers(batch):
                if buffer is not None and buffer.address not in held:  # batches share those of texts
                    held.add(buffer.address)
                    size += buffer.size
            if size > most_bytes:
                return None
        return pa.Table.from_batches(batches, reader.schema)


def _buffers(batch: pa.RecordBatch) -> Iterator[pa.Buffer | None]:
    """Yield the memory of all columns but those that PyArrow has no class for: intervals of months, which
    are small, and which nothing prints."""
    for number in range(batch.num_columns):
        with suppress(KeyError):
            yield from batch.column(number).buffers()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # delta-rs raises just this, whatever its engine has to say
        kind = FilesGoneError if _FILE_GONE.search(str(error)) else QueryFailedError
        raise kind(f"asking the tables: {in_one_line(error)}.") from error


def in_one_line(error: BaseException) -> str:
    """Give the text of an error of delta-rs, which may span lines and hold terminal colours."""
    return " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split()).rstrip(".")


def written_after(moment: int) -> str:
    """Write the condition that a row of `changes` was written after a moment (ms)."""
    return f'"batch_time" > {_timestamp(moment)}'


def written_until(moment: int) -> str:
    """Write the condition that a row of `changes` was written at a moment (ms) or before."""
    return f'"batch_time" <= {_timestamp(moment)}'


def between(column: str, first: int, last: int) -> str:
    """Write the condition that a timestamp lies between two moments (ms), these included."""
    return f'"{column}" BETWEEN {_timestamp(first)} AND {_timestamp(last)}'


def names(columns: Sequence[str]) -> str:
    """Write column names, quoted: `group` and `partition` are words of SQL."""
    return ", ".join(f'"{column}"' for column in columns)


def is_one_of(column: str, values: Sequence[str] | Sequence[int]) -> str:
    """Write the condition that a column has one of these texts or numbers."""
    return f'"{column}" IN ({", ".join(map(_literal, values))})' if values else "false"


def _timestamp(milliseconds: int) -> str:
    return f"arrow_cast({milliseconds * 1_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
