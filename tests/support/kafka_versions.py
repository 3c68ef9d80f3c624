"""The releases of Kafka that the tests run against, and what each of them lacks.

`make test KAFKA=3.9.2` runs the brokers of all tests in that release. A test marked `needs(Feature.X)`
is skipped where `VERSIONS` says that the release lacks X, and a test of several things leaves out what its
broker lacks by the same table. The demo and the tests' own Java clients stay at the default release.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pytest
from broker_classes import java_options
from formatted_broker import FormattedBroker

from streaming.demo.local_broker import LocalBroker
from streaming.jvm.jars import JarSet, ensure_jars

DEFAULT: Final = "4.3.1"


class Feature(StrEnum):
    """What not every release has; the text ends the sentence "Kafka ... has no ..."."""

    CONSUMER_PROTOCOL = "groups of the consumer protocol"
    SUBSCRIPTION_PATTERNS = "subscriptions by a pattern that the broker resolves"
    SHARE_GROUPS = "share groups"
    STREAMS_GROUPS = "streams groups"
    LENIENT_STATE_FILTERS = "filters of states that overlook case and spaces"
    TOPIC_IDS = "topic ids in committed offsets"
    DESCRIBE_GROUPS_6 = "DescribeGroups of version 6, which says that a group is unknown"
    LENIENT_TAG_COUNTS = "patience with a negative number of tagged fields, which nobody writes"
    RECORD_CLASSES = "classes of its own that show every type of record as JSON"


@dataclass(frozen=True)
class KafkaVersion:
    """A release as it is shipped: with the defaults of its own server.properties."""

    name: str
    jars: JarSet
    lacks: frozenset[Feature] = frozenset()

    def has(self, feature: Feature) -> bool:
        """Tell whether brokers of this release have the feature."""
        return feature not in self.lacks

    def why_not(self, feature: Feature) -> str:
        """Return why a test of a feature that is missing is skipped."""
        return f"Kafka {self.name} has no {feature}"

    def broker(
        self, directory: Path, *, more_java_options: Sequence[str] = (), **options: Any
    ) -> LocalBroker:
        """Return a broker of this release, to be started; other options are those of `LocalBroker`."""
        jars = ensure_jars(self.jars)
        all_options = (*java_options(jars), *more_java_options)
        return FormattedBroker(directory, jars=jars, java_options=all_options, **options)


VERSIONS: Final[Mapping[str, KafkaVersion]] = {
    version.name: version
    for version in (
        # The old group coordinator. The new one is a preview there, and librdkafka does not join its groups.
        KafkaVersion("3.9.2", "broker-3.9.2", lacks=frozenset(Feature) - {Feature.LENIENT_TAG_COUNTS}),
        KafkaVersion("4.3.1", "broker"),
        KafkaVersion("4.4.0", "broker-4.4.0", lacks=frozenset({Feature.LENIENT_TAG_COUNTS})),
    )
}


def chosen_version(environment: Mapping[str, str] = os.environ) -> KafkaVersion:
    """Return the release that KAFKA names, else the default one; raises `pytest.UsageError` for others."""
    name = environment.get("KAFKA") or DEFAULT
    if name not in VERSIONS:
        raise pytest.UsageError(f"KAFKA={name}: expected one of {', '.join(VERSIONS)}")
    return VERSIONS[name]


def missing_features(item: pytest.Item, version: KafkaVersion) -> Iterator[Feature]:
    """Yield what the test needs, by its marks `needs`, and the release lacks."""
    for mark in item.iter_markers("needs"):
        yield from (feature for feature in mark.args if not version.has(feature))


def header(version: KafkaVersion) -> str:
    """Return the line of pytest's header that names the release and what it lacks."""
    lacks = "; ".join(sorted(version.lacks))
    return f"kafka: {version.name}" + (f" (has no {lacks})" if lacks else "")
