"""The state of one shard in memory."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class MapState:
    """What Spark's `MapState` is to one shard."""

    values: dict[Any, Any] = field(default_factory=dict)

    def getValue(self, key: Any) -> Any:  # noqa: N802 (Spark's name)
        return self.values.get(key)

    def updateValue(self, key: Any, value: Any) -> None:  # noqa: N802
        self.values[key] = value

    def removeKey(self, key: Any) -> None:  # noqa: N802
        self.values.pop(key, None)
