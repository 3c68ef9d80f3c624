"""The vectorized pandas UDFs around `decoders`; they have no logic of their own."""

from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from decoders import RECORD_SCHEMA, decode_columns
from streaming.packing.by_shard import pack_by_shard
from streaming.packing.shards import Shards
from streaming.spark.worker_memory import prepare_worker, return_after

RECORD_TYPE: Final[StructType] = from_arrow_schema(RECORD_SCHEMA)
"""The result type of `decode_record`: the columns of `decoders.RECORD_SCHEMA`."""

BLOCK_TYPE: Final = StructType([StructField("shard", IntegerType()), StructField("records", BinaryType())])

POSITION: Final = ("source_partition", "source_offset", "source_timestamp")


@pandas_udf(RECORD_TYPE)  # type: ignore[call-overload, untyped-decorator] # the stubs want a functionType
def decode_record(key: pd.Series, value: pd.Series, *position: pd.Series) -> pd.DataFrame:
    """Decode the key and value (binary, null = tombstone) of n records of the offsets topic.

    Returns a struct per record, with either its content or the reason why it could not be decoded
    (`error_kind`, `reason`, `field`, `at_byte`); malformed bytes never make it fail. Works in a batch and in
    a stream:

        df.select(decode_record("key", "value").alias("record")).select("record.*")

    Inside the job a second UDF is applied to the result, and Spark runs both in one worker without a transfer
    in between. Only for that UDF, three more columns (partition, offset and timestamp of the record) may be
    passed: they and the bytes are added to the result, beside the declared fields.
    """
    keys, values = pa.chunked_array([_binary(key)]), pa.chunked_array([_binary(value)])
    decoded = decode_columns(keys, values)
    if not position:  # the result goes to Spark, which does not support a column of several chunks
        return _as_frame(decoded.combine_chunks())
    frame = _as_frame(decoded.append_column("key", keys).append_column("value", values))
    return frame.assign(**dict(zip(POSITION, position, strict=True)))


def packing_udf(shards: Shards, *, check_partition: bool) -> Any:
    """Return the UDF that packs decoded records by shard (`pack_by_shard`)."""

    @pandas_udf(BLOCK_TYPE)  # type: ignore[call-overload, untyped-decorator]
    def pack_records(decoded: pd.DataFrame) -> pd.DataFrame:
        """Pack n decoded records (with their positions) into one packed block per shard.

        Returns n rows, as a UDF must: first the blocks, then nulls.
        """
        table = pa.Table.from_pandas(decoded, preserve_index=False)
        blocks = pack_by_shard(table, shards, check_partition=check_partition)
        padding = len(decoded) - len(blocks)
        columns = {
            "shard": _padded(pa.array(blocks, pa.int32()), padding),
            "records": _padded(pa.array(blocks.values(), pa.binary()), padding),
        }
        prepare_worker()
        return_after(0)
        return _as_frame(pa.table(columns))

    return pack_records.asNondeterministic()  # else Spark runs it twice: once to filter, once to select


def _binary(values: pd.Series) -> pa.Array:
    return pa.array(values, pa.binary(), from_pandas=True)


def _padded(column: pa.Array, nulls: int) -> pa.Array:
    return pa.concat_arrays([column, pa.nulls(nulls, column.type)])


def _as_frame(table: pa.Table) -> pd.DataFrame:
    """Return a data frame on the same memory."""
    columns = {
        name: pd.Series(table[name], dtype=pd.ArrowDtype(table[name].type), copy=False)
        for name in table.column_names
    }
    return pd.DataFrame(columns, copy=False)
