"""Runs SQL on Delta tables with the engine inside delta-rs, which opens only the files that a query needs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from streaming.common.topics import TopicPartitions, topics_by_partitions
from streaming.model.errors import OffsetlakeError
from streaming.tables.storage_errors import advice_about, without_answers

_FILE_GONE: Final = re.compile(r"Object at location .* not found")


class QueryFailedError(OffsetlakeError):
    """The SQL engine rejected or could not finish a query."""


class FilesGoneError(QueryFailedError):
    """Files of the table were removed after it was opened; opening it again lists the current files."""


class HeldRows:
    """Rows in memory that can be queried as a table is. Threads may query them while one appends.

    Columns of texts are dictionaries: names repeat, and queries return them so.
    """

    def __init__(self, name: str) -> None:
        """Queries refer to the rows by `name`; there is no such table before the first `append`."""
        self.name: Final = name
        self.builder: Final = QueryBuilder()
        self._is_created = False

    def append(self, rows: pa.Table) -> None:
        """Append rows, by way of a temporary file: the engine takes no Arrow tables.

        Raises `OSError` if there is no place for it.
        """
        verb = f"INSERT INTO {self.name}" if self._is_created else f"CREATE TABLE {self.name} AS"
        columns = ", ".join(map(_with_dictionary, rows.schema))
        with TemporaryDirectory(prefix="offsetlake-") as folder:
            path = f"{folder}/rows.parquet"
            pq.write_table(rows, path, compression="none", store_schema=False)
            place = path.replace("'", "''")
            execute(self.builder, f"CREATE EXTERNAL TABLE added STORED AS PARQUET LOCATION '{place}'")
            execute(self.builder, f"{verb} SELECT {columns} FROM added")
            execute(self.builder, "DROP TABLE added")
        self._is_created = True


def _with_dictionary(field: pa.Field) -> str:
    """Return the SQL for a column, with a dictionary if it has texts."""
    if field.type != pa.string():
        return f'"{field.name}"'
    name = f'"{field.name}"'
    return f"arrow_cast({name}, 'Dictionary(Int32, Utf8)') AS {name}"


Queryable = DeltaTable | HeldRows
"""The source of a query: a table, or rows in memory."""


def select(sql: str, **tables: Queryable) -> pa.Table:
    """Run a query on tables as of when they were opened; raises `QueryFailedError`.

    Rows in memory can only be queried by themselves.
    """
    return execute(_builder_of(tables), sql)


def _builder_of(tables: Mapping[str, Queryable]) -> QueryBuilder:
    builder = QueryBuilder()
    for name, table in tables.items():
        if isinstance(table, HeldRows):
            assert list(tables) == [table.name], "rows in memory are queried by themselves, by their name"
            return table.builder
        builder.register(name, table)
    return builder


def stream(sql: str, **tables: Queryable) -> Iterator[pa.Table]:
    """As `select`, but yield the rows in tables of some thousands."""
    builder = _builder_of(tables)
    with explained():
        for batch in pa.RecordBatchReader.from_stream(builder.execute(sql)):
            yield pa.Table.from_batches([batch])


def execute(builder: QueryBuilder, sql: str) -> pa.Table:
    """Run a query on the registered tables; raises `QueryFailedError`."""
    with explained():
        return pa.RecordBatchReader.from_stream(builder.execute(sql)).read_all()


def cast(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the result of a query, or rows of a file, except columns that come as dictionaries."""
    fields = [
        own if pa.types.is_dictionary(own.type) else field
        for own, field in zip(rows.schema, schema, strict=True)
    ]
    return rows.cast(pa.schema(fields))


def rows_of(builder: QueryBuilder, sql: str, *, most_bytes: int) -> pa.Table | None:
    """As `execute`; None if the result takes more than `most_bytes` of memory: reading stops then."""
    with explained():
        reader = pa.RecordBatchReader.from_stream(builder.execute(sql))
        batches, size = list[pa.RecordBatch](), 0
        for batch in reader:
            batches.append(batch)
            size += batch.get_total_buffer_size()
            if size > most_bytes:  # batches share text buffers, which count once
                size = pa.Table.from_batches(batches).get_total_buffer_size()
            if size > most_bytes:
                return None
        return pa.Table.from_batches(batches, reader.schema)


@contextmanager
def explained() -> Iterator[None]:
    """Raise `QueryFailedError` in place of any error while files of tables are read."""
    try:
        yield
    except Exception as error:  # delta-rs raises just this for all errors of its engine
        kind = FilesGoneError if _FILE_GONE.search(str(error)) else QueryFailedError
        advice = advice_about(said := in_one_line(error))
        raise kind(f"asking the tables: {said}.{f' {advice}.' if advice else ''}") from error


def in_one_line(error: BaseException) -> str:
    """Return the text of an error of delta-rs without line breaks and terminal colours; see
    `without_answers`."""
    text = without_answers(re.sub(r"\x1b\[[\d;]*m", "", str(error)))
    return " ".join(text.split()).rstrip(".")


def written_after(moment: int) -> str:
    """Return the SQL condition that a row of `changes` was written after a moment (ms)."""
    return f'"batch_time" > {_timestamp(moment)}'


def written_until(moment: int) -> str:
    """Return the SQL condition that a row of `changes` was written at or before a moment (ms)."""
    return f'"batch_time" <= {_timestamp(moment)}'


def between(column: str, first: int, last: int) -> str:
    """Return the SQL condition that a timestamp lies between two moments (ms, inclusive)."""
    return f'"{column}" BETWEEN {_timestamp(first)} AND {_timestamp(last)}'


def names(columns: Sequence[str]) -> str:
    """Return a list of quoted column names for SQL, in which `group` and `partition` are keywords."""
    return ", ".join(f'"{column}"' for column in columns)


def is_one_of(column: str, values: Sequence[str] | Sequence[int]) -> str:
    """Return the SQL condition that a column has one of these values; false for none."""
    return f'"{column}" IN ({", ".join(map(_literal, values))})' if values else "false"


def is_of_topics(topics: Sequence[TopicPartitions]) -> str:
    """Return the SQL condition that a row (with topic and partition) is of one of these; no topics: all
    rows."""
    some = [
        is_one_of("topic", named)
        + ("" if partitions is None else f" AND {is_one_of('partition', sorted(partitions))}")
        for partitions, named in topics_by_partitions(topics).items()
    ]
    return f"({' OR '.join(some)})" if some else "true"


def _timestamp(milliseconds: int) -> str:
    return f"arrow_cast({milliseconds * 1_000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
