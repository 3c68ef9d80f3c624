"""Makes the checks, one after the other, with both of the job's clients.

All requests are read-only: nothing is written, no group is joined, and no topic is created. That is why the
own group is asked for only where the offsets topic is seen: brokers create it at the first request about a
group.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from decoders import DecodeError, decode_document
from streaming.brokers.client_settings import java_needs
from streaming.brokers.facts import BrokerError, ClusterFacts, NoAnswer, TopicState
from streaming.brokers.inquiry import Inquiry
from streaming.check import findings
from streaming.check.findings import Finding
from streaming.check.kinds import Kind, hosts_of, kind_of
from streaming.jvm.jars import ensure_jars
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import PartitionEnds
from streaming.settings.model import OFFSETS_TOPIC, Settings

if TYPE_CHECKING:
    from streaming.check.java_client import JavaClient, ReadRecord

LIMIT_S: Final = 10.0
"""The most time for a request; `[source] connect_timeout` if that is shorter."""

_NOT_SIGNED_IN: Final = "librdkafka could not sign in"

_READ_PARTITIONS: Final = 8
_READ_RECORDS: Final = 25
"""The newest records of some partitions show which topics groups consume now."""


def checks(settings: Settings, now: Callable[[], int]) -> Iterator[Finding]:
    """Yield the findings as they are made; `now` is the clock (ms).

    Raises `MisuseError` for settings that cannot work.
    """
    source = settings.source
    limit_s = min(LIMIT_S, source.connect_timeout_ms / 1_000)
    try:
        inquiry = Inquiry(source)
    except BrokerError as error:  # no token: AWS gives no credentials
        yield Finding(findings.LIBRDKAFKA, "failed", str(error))
        yield from findings.not_asked(findings.OF_SIGN_IN, _NOT_SIGNED_IN)
        yield from _by_java(_Asked(settings, limit_s, now, why_not=_NOT_SIGNED_IN))
        return
    cluster = inquiry.cluster(limit_s)
    kind = _kind(settings, cluster)
    yield findings.sign_in(cluster, source.bootstrap_servers, kind, limit_s)
    asked = _Asked(settings, limit_s, now)
    if isinstance(cluster, NoAnswer):
        asked = replace(asked, why_not=_NOT_SIGNED_IN)
        yield from findings.not_asked(findings.OF_SIGN_IN, asked.why_not)
    else:
        asked = yield from _by_librdkafka(replace(asked, topics=inquiry.topics), inquiry, cluster, kind)
    yield from _by_java(asked)


@dataclass(frozen=True)
class _Asked:
    """What librdkafka has found, and how to ask further; `now` is the clock (ms).

    `topics` is `Inquiry.topics`, once librdkafka has signed in. `why_not` is why no partition can be asked
    (empty: `ends` are those that can). `is_silent`: no broker answers at its advertised address.
    """

    settings: Settings
    limit_s: float
    now: Callable[[], int]
    topics: Callable[[Iterable[str]], Mapping[str, TopicState]] | None = None
    starts: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, PartitionEnds] = field(default_factory=dict)
    has_offsets_topic: bool = False
    is_silent: bool = False
    why_not: str = ""


def _by_librdkafka(
    asked: _Asked, inquiry: Inquiry, cluster: ClusterFacts, kind: Kind | None
) -> Generator[Finding, None, _Asked]:
    """Yield what librdkafka finds after its sign-in; return it."""
    source, limit_s = asked.settings.source, asked.limit_s
    error = "" if cluster.leaders else inquiry.topic_error(limit_s)
    yield findings.topic(source.topic, len(cluster.leaders), error, kind)
    brokers = inquiry.broker_settings(cluster.addresses, limit_s)
    yield findings.brokers(cluster.addresses, brokers, set(cluster.leaders.values()))
    yield findings.cluster_settings(source.topic, brokers, asked.settings.expiry.retention_ms)
    is_silent = len(findings.unreached(brokers)) == len(brokers)
    asked = replace(asked, has_offsets_topic=cluster.has_offsets_topic, is_silent=is_silent)
    if not cluster.leaders or is_silent:
        silent, missing = "no broker answers at its advertised address", "this user sees no such topic"
        asked = replace(asked, why_not=silent if is_silent else missing)
        yield from findings.not_asked(findings.OF_TOPIC, asked.why_not)
        return asked
    starts, ends = _offsets(inquiry, len(cluster.leaders), limit_s)
    yield findings.partitions(cluster.addresses, cluster.leaders, ends)
    yield findings.records(starts, ends, len(cluster.leaders))
    yield findings.topic_settings(source.topic, inquiry.tombstones_kept_ms(limit_s))
    return replace(
        asked, starts=starts, ends=ends, why_not="" if ends else "no leader of a partition answers"
    )


def _kind(settings: Settings, cluster: ClusterFacts | NoAnswer) -> Kind | None:
    addresses = [settings.source.bootstrap_servers]
    if isinstance(cluster, NoAnswer):
        return kind_of(hosts_of(addresses), None)
    return kind_of(hosts_of([*addresses, *cluster.addresses.values()]), cluster.cluster_id)


def _offsets(
    inquiry: Inquiry, partition_count: int, limit_s: float
) -> tuple[Mapping[int, int], Mapping[int, PartitionEnds]]:
    """Return the start and the end of each partition whose leader reports them."""
    try:
        return inquiry.starts(partition_count, limit_s), inquiry.ends(partition_count, limit_s)
    except BrokerError:  # no leader answers
        return {}, {}


def _by_java(asked: _Asked) -> Iterator[Finding]:
    """Yield what Kafka's Java client finds; without it, that the other checks were not made."""
    from streaming.check.java_client import JavaClient  # loads PySpark: the first findings do not wait for it

    left = [findings.JAVA, *findings.OF_JAVA]
    try:
        jar_sets = ("connector", *java_needs(asked.settings.source).jar_sets)
        jars = [ensure_jars(jar_set) for jar_set in jar_sets]
        with JavaClient(asked.settings, jars, len(asked.ends) or 1, asked.limit_s) as client:
            for finding in _with_client(client, asked):
                left.remove(finding.check)
                yield finding
    except OffsetlakeError as error:
        yield Finding(left[0], "failed", str(error))
        yield from findings.not_asked(left[1:], "there is no Java client")


def _with_client(client: "JavaClient", asked: _Asked) -> Iterator[Finding]:
    source = asked.settings.source
    version = client.sign_in()
    yield findings.java_sign_in(version, source.bootstrap_servers, asked.limit_s)
    if isinstance(version, NoAnswer):
        yield from findings.not_asked(findings.OF_JAVA, "Kafka's Java client could not sign in")
        return
    if asked.is_silent:
        yield from findings.not_asked(findings.OF_JAVA, asked.why_not)
        return
    yield findings.release(client.metadata_level())
    read: list[ReadRecord] | NoAnswer = []
    if asked.ends:
        yield _own_group(client, asked)
        read = client.read(newest(asked.starts, asked.ends))
        yield findings.read(source.topic, read if isinstance(read, NoAnswer) else len(read))
        yield _topics_of_groups(asked, read)
    else:
        yield from findings.not_asked(findings.OF_RECORDS, asked.why_not)
    asked_at = asked.now()
    yield findings.clocks(client.controller_ms(), asked_at, asked.now(), _newest_ms(source.topic, read))


def _own_group(client: "JavaClient", asked: _Asked) -> Finding:
    from streaming.spark.source import GROUP_PREFIX

    if asked.has_offsets_topic:
        return findings.own_group(client.own_group(min(asked.ends)), GROUP_PREFIX)
    why = f"this user sees no topic {OFFSETS_TOPIC}, and brokers would create it"
    return Finding(findings.GROUPS, "unknown", f"not checked: {why}")


def newest(starts: Mapping[int, int], ends: Mapping[int, PartitionEnds]) -> dict[int, int]:
    """Return the offsets from which to read the newest records, of the partitions with most records; if there
    are no records, the end of a partition."""
    lengths = {
        number: ends[number].last_stable_offset - starts[number] for number in starts.keys() & ends.keys()
    }
    filled = sorted(
        (number for number in lengths if lengths[number] > 0), key=lambda one: (-lengths[one], one)
    )
    chosen = {
        number: max(starts[number], ends[number].last_stable_offset - _READ_RECORDS)
        for number in filled[:_READ_PARTITIONS]
    }
    return chosen or {number: end.last_stable_offset for number, end in sorted(ends.items())[:1]}


def _topics_of_groups(asked: _Asked, read: "list[ReadRecord] | NoAnswer") -> Finding:
    if isinstance(read, NoAnswer) or asked.topics is None:
        return Finding(findings.TOPICS_OF_GROUPS, "unknown", "not checked: no record could be read")
    if asked.settings.source.topic != OFFSETS_TOPIC:
        why = "not checked: the topic may be a copy from another cluster"
        return Finding(findings.TOPICS_OF_GROUPS, "unknown", why)
    try:
        return findings.topics_of_groups(asked.topics(committed_topics(read)))
    except BrokerError as error:
        return Finding(findings.TOPICS_OF_GROUPS, "unknown", str(error))


def committed_topics(records: "list[ReadRecord]") -> set[str]:
    """Return the topics in the keys of commits."""
    topics = set()
    for record in records:
        try:
            data = decode_document(record.key, None)["key"]["data"]
        except DecodeError:
            continue
        if "topic" in data:
            topics.add(data["topic"])
    return topics


def _newest_ms(topic: str, read: "list[ReadRecord] | NoAnswer") -> int | None:
    """Return the newest timestamp that a broker has given to a record; those of other topics are from
    producers."""
    if topic != OFFSETS_TOPIC or isinstance(read, NoAnswer):
        return None
    return max((record.timestamp_ms for record in read if record.timestamp_ms >= 0), default=None)
