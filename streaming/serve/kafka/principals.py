"""Principals of the Kafka listener, and the groups and topics that each may see."""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Principal:
    """A signed-in client, with patterns (`*`, `?`, `[...]`) of the groups and topics that it may see."""

    name: str
    groups: Sequence[str]
    topics: Sequence[str]

    def may_see_group(self, group: str) -> bool:
        return self._groups.match(group) is not None

    def may_see_topic(self, topic: str) -> bool:
        return self._topics.match(topic) is not None

    @cached_property
    def _groups(self) -> re.Pattern[str]:
        return _any_of(self.groups)

    @cached_property
    def _topics(self) -> re.Pattern[str]:
        return _any_of(self.topics)


def _any_of(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)")
