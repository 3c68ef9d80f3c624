"""Reads a query's checkpoint, which Spark writes: the id of the query, and the positions of each batch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from streaming.model.errors import OffsetlakeError
from streaming.spark.java_errors import kind_and_message

STATE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
"""The Spark setting that is the number of state partitions."""

T = TypeVar("T")

_CHECKSUM: Final = "ChecksumException"
"""Hadoop's exception for a file that differs from its checksum."""


class DamagedCheckpointError(OffsetlakeError):
    """A file of the checkpoint is cut off or was changed, as after a loss of power: no query continues."""


def state_partitions(spark: SparkSession) -> int:
    """Return the number of state partitions of new queries in this session."""
    return int(spark.conf.get(STATE_PARTITIONS) or 0)


def checkpoint_uri(path: str) -> str:
    """Return the checkpoint's location as Spark and Hadoop read it: a URL, but in it nothing is escaped."""
    return path if "://" in path else f"file://{Path(path).resolve()}"


class Checkpoint:
    """The checkpoint of a streaming query, on any file system that Spark can reach."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = checkpoint_uri(path)
        self._spark = spark
        context: Any = spark.sparkContext
        self._jvm = context._jvm
        root = self._jvm.org.apache.hadoop.fs.Path(self.path)
        self._files = root.getFileSystem(context._jsc.hadoopConfiguration())

    def query_id(self) -> str | None:
        """Return the id of the query of the checkpoint; None if there is no checkpoint yet."""
        text = self._read("metadata")
        return None if text is None else self._parsed("metadata", text, lambda text: json.loads(text)["id"])

    def has_batches(self) -> bool:
        """Return whether any batch was completed."""
        commits = self._path("commits")
        return self._files.exists(commits) and len(self._files.listStatus(commits)) > 0

    def state_partitions(self) -> int | None:
        """Return the number of state partitions, which Spark fixes in the first batch; None before that."""
        newest = max(self._numbers("offsets"), default=None)
        text = None if newest is None else self._read(f"offsets/{newest}")
        if text is None:
            return None

        def parse(text: str) -> int:
            return int(json.loads(text.splitlines()[1])["conf"][STATE_PARTITIONS])

        return self._parsed(f"offsets/{newest}", text, parse)

    def versions_to_replay(self) -> int:
        """Return the number of state versions that a start replays on top of a snapshot: the maximum over all
        state partitions.

        Spark's file of a snapshot is `<version>.zip` in the folder of a partition; the version is the number
        of batches in it. A snapshot that is newer than the last completed batch is useless.
        """
        version = 1 + max(self._numbers("commits"), default=-1)
        newest = [self._newest_snapshot(f"state/0/{number}", version) for number in self._numbers("state/0")]
        return version - min(newest, default=version)

    def _newest_snapshot(self, partition: str, version: int) -> int:
        """Return the newest snapshot version in a folder, up to `version`; 0: there is none."""
        snapshots = (name.removesuffix(".zip") for name in self._names(partition) if name.endswith(".zip"))
        numbers = (int(number) for number in snapshots if number.isdecimal())
        return max((number for number in numbers if number <= version), default=0)

    def delete(self) -> None:
        self._files.delete(self._path(""), True)

    def positions(self, batch_id: int, topic: str) -> dict[int, int]:
        """Return the end of a batch: for every partition of the topic the next source offset to read.

        The file is Spark's offset log (`OffsetSeqLog`): a version line, a line of metadata, one line per
        source.
        """
        text = self._read(f"offsets/{batch_id}") or ""  # Spark writes it before it runs the batch
        ends = self._parsed(f"offsets/{batch_id}", text, lambda text: json.loads(text.splitlines()[2])[topic])
        return {int(partition): offset for partition, offset in ends.items()}

    def end(self, topic: str) -> dict[int, int]:
        """Return the end of the last completed batch, as `positions` does; empty: none was completed."""
        newest = max(self._numbers("commits"), default=None)
        return {} if newest is None else self.positions(newest, topic)

    def _parsed(self, file: str, text: str, parse: Callable[[str], T]) -> T:
        """Return the part of a file that `parse` reads; raises `DamagedCheckpointError`."""
        try:
            return parse(text)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(file, repr(text[:100])) from error

    def _damaged(self, file: str, found: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(
            f"checkpoint {self.path}: expected the file {file} as Spark has written it, found {found}. "
            "`offsetlake rebuild` creates a new checkpoint and keeps the tables."
        )

    def _numbers(self, folder: str) -> list[int]:
        """Return the names in a folder of the checkpoint that are numbers: of batches, or of partitions."""
        return [int(name) for name in self._names(folder) if name.isdecimal()]

    def _names(self, folder: str) -> list[str]:
        """Return the names in a folder of the checkpoint. (No glob: the path may have special characters.)"""
        path = self._path(folder)
        files = self._files.listStatus(path) if self._files.exists(path) else ()
        return [file.getPath().getName() for file in files]

    def _path(self, name: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path
        return path(self.path, name) if name else path(self.path)

    def _read(self, name: str) -> str | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        except Py4JJavaError as error:
            if kind_and_message(error)[0] != _CHECKSUM:
                raise
            raise self._damaged(name, "another checksum") from error
        finally:
            stream.close()
