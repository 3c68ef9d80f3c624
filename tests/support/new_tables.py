"""Tables that nothing was written to yet, copied from tables that are created once in a process: a creation
takes as long as two commits. Tests of the creation itself call `Tables.create`."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import uuid4

from streaming.common.times import now_ms
from streaming.tables.tables import Tables

_TIMES: Final = re.compile(r'((?:timestamp|createdTime)\\?":)\d+')


def new_tables(root: Path) -> Tables:
    """Return tables in a folder that need not exist, as `Tables.create` makes them: with ids of their own,
    created now."""
    now = now_ms()
    for name, log in _created().items():
        file = root / name
        file.parent.mkdir(parents=True)
        file.write_text(_TIMES.sub(rf"\g<1>{now}", log).replace(_id_in(log), str(uuid4())))
    return Tables(str(root))


@cache
def _created() -> Mapping[Path, str]:
    """Return the first entry of each table's log, by its file under the root."""
    with TemporaryDirectory() as folder:
        Tables(folder).create()
        return {file.relative_to(folder): file.read_text() for file in Path(folder).rglob("*.json")}


def _id_in(log: str) -> str:
    found = re.search('"id":"(.*?)"', log)
    assert found
    return found[1]
