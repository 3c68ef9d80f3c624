"""A record type: one row of the table of all formats.

A key is an int16 record type and the key's fields; a value is an int16 version and the fields of that
version. A null value (a tombstone) removes the entry of its key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from construct import Struct

NONE: Final = -1  # the value of an absent epoch or timestamp


@dataclass(frozen=True)
class RecordType:
    """One kind of record: its number and name in Kafka, its key, and its value in every version that exists.

    `group_type` is the type, as ListGroups names it, of the groups that consist of such records; None if
    no group does. The fields of a `tabular` type, an offset commit, are columns of their own in the
    decoded table; other values are documents.
    """

    number: int
    name: str
    key: Struct
    values: Mapping[int, Struct]
    group_type: str | None = None
    tabular: bool = False

    @cached_property
    def key_subject(self) -> str:
        """The key as error messages name it: `offset-commit key`."""
        return f"{self._spoken_name} key"

    @cached_property
    def value_subject(self) -> str:
        """The value as error messages name it: `offset-commit value`."""
        return f"{self._spoken_name} value"

    @property
    def _spoken_name(self) -> str:
        return re.sub(r"(?<!^)(?=[A-Z])", "-", self.name).lower()


RecordTypes = Mapping[int, RecordType]
