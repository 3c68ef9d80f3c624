"""How Spark evaluates the query's expressions: by code that it generates, or by interpreting them.

Generated code is quicker for each record. But Spark writes the source of it again in every task, for every
offsets partition and for every batch, even where it has compiled the same before. A small batch takes a
quarter less of the JVM's time without.
"""

from typing import Final

from pyspark.sql import SparkSession

MANY_RECORDS: Final = 200_000
"""From this many records on, generated code is worth what it takes: the first batch of a catch-up has them
interpreted, which costs less than compiling does there."""

INTERPRETED: Final = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""What a session begins with."""

_GENERATED: Final = {"spark.sql.codegen.factoryMode": "FALLBACK", "spark.sql.codegen.wholeStage": "true"}


class Evaluation:
    """Chooses for each batch of a query, by what the one before has read; not where the user has chosen."""

    def __init__(self) -> None:
        self._conf = INTERPRETED

    def choose(self, session: SparkSession, records: int) -> None:
        """Choose for the next batch of the query that runs in this session: this one had so many records."""
        wanted = _GENERATED if records >= MANY_RECORDS else INTERPRETED
        if wanted is self._conf or any(session.conf.get(name) != was for name, was in self._conf.items()):
            return
        for name, value in wanted.items():
            session.conf.set(name, value)
        self._conf = wanted
