"""Makes tables what they were before members had more than an identity."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.model.schemas import MEMBER_IDENTITY
from streaming.tables.commits import PROGRESS_KEY
from streaming.tables.folding import FOLD_TRANSACTION, fold_mark
from streaming.tables.tables import Tables

_FORMER: Final = "-former"


def make_former(tables: Tables) -> None:
    """Rewrite `changes` and `groups` with the columns that they had, and the progress as it was noted."""
    progress = tables.progress()
    document: dict[str, Any] = json.loads(progress.to_json())
    del document["groups_format"]
    batch = Transaction(str(progress.query_id), progress.batch_id)
    said = CommitProperties(custom_metadata={PROGRESS_KEY: json.dumps(document)}, app_transactions=[batch])
    _rewrite(tables, "changes", "day", said)
    folded = Transaction(FOLD_TRANSACTION, fold_mark(tables.delta("groups")))
    _rewrite(tables, "groups", "bucket", CommitProperties(app_transactions=[folded]))


def _rewrite(tables: Tables, name: str, partitioned_by: str, commit: CommitProperties) -> None:
    table = tables.delta(name)
    rows = table.to_pyarrow_table()
    schema = pa.schema([_former(field) for field in rows.schema if field.name != "assignment_epoch"])
    place = Path(tables.root) / f"{name}{_FORMER}"
    DeltaTable.create(
        place,
        schema,
        partition_by=[partitioned_by],
        configuration=table.metadata().configuration,
        raise_if_key_not_exists=False,
    )
    write_deltalake(place, rows.select(schema.names).cast(schema), mode="append", commit_properties=commit)
    shutil.rmtree(Path(tables.root) / name)
    place.rename(Path(tables.root) / name)


def _former(field: pa.Field) -> pa.Field:
    if field.name == "members":
        return field.with_type(pa.list_(MEMBER_IDENTITY))
    if field.name in ("before", "after"):
        kept = [_former(child) for child in field.type if child.name != "assignment_epoch"]
        return field.with_type(pa.struct(kept))
    return field
