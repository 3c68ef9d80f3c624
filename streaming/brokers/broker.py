"""Requests to the brokers besides reading the topic: ends of partitions, topics, retention of offsets.

All are read-only and return within a timeout.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from streaming.brokers.answers import (
    DENIED,
    MOVED,
    answer_of,
    is_silence,
    offset_of,
    state_of,
    tells_of_topic,
    topic_id_of,
)
from streaming.brokers.client_log import ClientLog
from streaming.brokers.client_settings import client_of, librdkafka_settings, secrets_of
from streaming.brokers.facts import (
    ASSIGNORS,
    CHECK_INTERVAL,
    DEFAULT_DELETE_RETENTION_MS,
    DELETE_RETENTION,
    NO_RETENTION,
    RETENTION,
    AccessRefusedError,
    BrokerError,
    BrokerRetention,
    BrokerSettings,
    LogRange,
    TokenRefusedError,
    TopicFacts,
    TopicMissingError,
    TopicState,
    agreed_retention,
    first_assignor,
)
from streaming.common.times import MINUTE_MS
from streaming.model.errors import MisuseError
from streaming.model.progress import PartitionEnds
from streaming.settings.model import SourceSettings

_log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0
QUICK_TIMEOUT_S: Final = 3.0
"""For requests that batches and heartbeats wait for: a silent broker must be reported within 15 seconds."""
_GIVE_UP_EVERY_S: Final = 0.2

_SILENT_FOR_S: Final = 30.0
"""After so long without an answer another client is used. Once a broker has reported that the cluster has no
brokers (all of them are fenced), librdkafka never connects again: confluentinc/librdkafka#5301."""

_ASKED_TOGETHER: Final = 200  # partitions: librdkafka searches all partitions of a request for each

_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NO_OFFSET: Final = -1
"""The offset where no record has the requested timestamp. Offsets below it mean "no answer" in librdkafka: a
partition whose leader is silent has offset -1001, and no error."""
_TIMED_OUT: Final = KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Broker:
    """A client for the requests of this module."""

    def __init__(self, source: SourceSettings) -> None:
        self._source = source
        self._may_have_moved = False
        settings = librdkafka_settings(client_of(source))
        self._log = ClientLog(secrets=secrets_of(settings))
        self._admin = self._new_client(settings)
        self._was_answered = False
        self._answered_at = time.monotonic()  # or when this client was created

    def sign_in_again(self) -> None:
        """Use a new client for the next requests: it reads the files of certificates, and requests a token.

        The one before has read them at its start, and keeps a token that has expired: if brokers have
        accepted it before, its refusals do not count. Raises `MisuseError` as at the start, and `BrokerError`
        if no token can be signed: `TokenRefusedError` if credentials were refused, `AccessRefusedError` if
        they have been for `connect_timeout`.
        """
        before, self._admin = self._admin, self._new_client(librdkafka_settings(client_of(self._source)))
        self._keep(before)
        if self._was_answered:
            self._log.answered()
        self._was_answered = False
        self._answered_at = time.monotonic()

    def _keep(self, client: AdminClient) -> None:
        """Keep a client while other threads may wait for its answers: its end would be their failure.

        Then it must end: it keeps connecting with the certificates and the token of its start, and its queue
        of events grows.
        """
        longest_s = max(REQUEST_TIMEOUT_S, self._source.connect_timeout_ms / 1_000)
        end = threading.Timer(longest_s, lambda _: None, [client])
        end.name, end.daemon = "offsetlake-replaced-client", True
        end.start()

    def _new_client(self, translated: Mapping[str, str]) -> AdminClient:
        settings: dict[str, Any] = {
            "client.id": "offsetlake",
            **translated,
            "error_cb": self._log.error,
        }
        if "oauth_cb" in settings:
            settings["oauth_cb"] = self._log.signing(settings["oauth_cb"])
        try:
            return AdminClient(settings, logger=self._log)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED:
                raise self._no_token() from error
            raise MisuseError(
                "setting up a Kafka client: expected settings that librdkafka takes, "
                f"found: {error.args[0].str()}. "
                "Check [source.client] in the settings and the --command-config file."
            ) from error

    def wait_for_topic(
        self,
        give_up: Callable[[], bool],
        *,
        waiting: Callable[[str], AbstractContextManager[object]] = nullcontext,
        limit_ms: int | None = None,
        known: TopicFacts | None = None,
    ) -> TopicFacts | None:
        """Wait until the topic exists and return its facts; None when `give_up` says so before.

        The brokers must answer within `connect_timeout`, else `BrokerError`. The topic may take `limit_ms`,
        else `TopicMissingError`; None: as long as it likes, since Kafka creates it at the first commit. That
        is logged once, and `waiting` says what is waited for. If the facts are `known` from before, they are
        returned for a topic that does not exist, at once, with the cluster of these brokers.
        """
        if give_up():
            return None
        source = self._source
        servers, pause_ms = source.bootstrap_servers, source.topic_poll_every_ms
        began = time.monotonic()
        with waiting(f"connecting to {servers}"):
            facts = self.topic_facts(source.connect_timeout_ms / 1_000)
        if facts is not None:
            return facts
        if known is not None:
            found = self._metadata(source.connect_timeout_ms / 1_000).cluster_id
            return replace(known, cluster_id=found or known.cluster_id)
        _log.warning(
            f"topic {source.topic} does not exist yet on {servers}, or this user may not see it (Describe "
            "permission): waiting for it (brokers create the topic at the first request about a group)"
        )
        pause_s = (pause_ms if limit_ms is None else min(pause_ms, limit_ms)) / 1_000
        with waiting(f"waiting for topic {source.topic} on {servers}"):
            while facts is None and not _rest(pause_s, give_up):
                facts = self.topic_facts(source.connect_timeout_ms / 1_000)
                if facts is None and limit_ms is not None and time.monotonic() - began >= limit_ms / 1_000:
                    raise TopicMissingError.of(source.topic, servers, limit_ms)
        return facts

    def topic_facts(self, timeout_s: float = REQUEST_TIMEOUT_S) -> TopicFacts | None:
        """Return the identity of the topic; None if it does not exist or this user may not see it. Raises
        `BrokerError`."""
        metadata = self._metadata(timeout_s)
        topic = metadata.topics.get(self._source.topic)
        if topic is None or not topic.partitions:
            return None
        ids = self.topic_ids([self._source.topic], timeout_s)
        if ids is None:
            raise self._unreachable(_TIMED_OUT, timeout_s)
        if ids.get(self._source.topic, "") is None:  # deleted since
            return None
        return TopicFacts(metadata.cluster_id, len(topic.partitions), ids.get(self._source.topic) or None)

    def ends(self, partition_count: int, timeout_s: float = QUICK_TIMEOUT_S) -> dict[int, PartitionEnds]:
        """Return the current ends of all partitions whose leader answers in time; raises `BrokerError` if
        none does."""
        if self._may_have_moved:
            self._learn_leaders()
        partitions = [(self._source.topic, number) for number in range(partition_count)]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = [
            self._ask_offsets(partitions, latest, isolation, timeout_s)
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        (stable, failure), (high, other) = [self._offsets(answers) for answers in asked]
        found = {
            key[1]: PartitionEnds(stable[key], max(high[key], stable[key]))
            for key in sorted(stable.keys() & high.keys())
        }
        if not found and partition_count:
            raise self._unreachable(failure or other or _TIMED_OUT, timeout_s)
        return found

    def starts(self, partition_count: int, timeout_s: float) -> dict[int, int]:
        """Return the log start offset of all partitions whose leader answers in time."""
        partitions = [(self._source.topic, number) for number in range(partition_count)]
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = self._ask_offsets(partitions, earliest, IsolationLevel.READ_UNCOMMITTED, timeout_s)
        return {number: offset for (_, number), offset in self._offsets(asked)[0].items()}

    def silence_of(self, partitions: Iterable[int]) -> BrokerError:
        """Return an error that names partitions without an answer from their leader, and the client's last
        failure."""
        failure = self._newest_failure()
        return BrokerError(
            f"asking {self._source.bootstrap_servers} about topic {self._source.topic}: expected an answer "
            f"from the leader of each partition, found none for {', '.join(map(str, sorted(partitions)))}"
            f"{f' (last failure: {failure})' if failure else ''}."
        )

    def first_since(self, timestamp_ms: int, partition_count: int) -> dict[int, int]:
        """Return the offset of the first record with this timestamp or a later one, by partition.

        Partitions without such a record, or whose leader does not answer, are left out.
        """
        partitions = [(self._source.topic, number) for number in range(partition_count)]
        since = OffsetSpec.for_timestamp(timestamp_ms)
        found, _ = self._list_offsets(partitions, since, IsolationLevel.READ_UNCOMMITTED)
        return {number: offset for (_, number), offset in sorted(found.items()) if offset >= 0}

    def retention(self) -> BrokerRetention:
        """Return the brokers' retention of offsets and their first assignor; raises `BrokerError` if no
        broker reports them. Requires DescribeConfigs on the cluster."""
        asked = {
            broker_id: self._admin.describe_configs(
                [ConfigResource(ResourceType.BROKER, str(broker_id))], request_timeout=REQUEST_TIMEOUT_S
            )
            for broker_id in sorted(self._metadata(REQUEST_TIMEOUT_S).brokers)
        }
        answers = {broker_id: answer_of(next(iter(futures.values()))) for broker_id, futures in asked.items()}
        told = {b: settings_of_broker(configs) for b, configs in answers.items() if isinstance(configs, dict)}
        silent = {b: e.args[0].str().rstrip(".") for b, e in answers.items() if isinstance(e, KafkaException)}
        silent |= {broker: NO_RETENTION for broker, settings in told.items() if settings is None}
        return agreed_retention({b: one for b, one in told.items() if one is not None}, silent)

    def delete_retention_ms(self, timeout_s: float = QUICK_TIMEOUT_S) -> int:
        """Return the topic's `delete.retention.ms`, the minimum retention of tombstones; Kafka's default
        without DescribeConfigs on the topic. Raises `BrokerError` if no broker answers."""
        asked = self._admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, self._source.topic)], request_timeout=timeout_s
        )
        answer = answer_of(next(iter(asked.values())))
        if isinstance(answer, KafkaException) and answer.args[0].code() not in DENIED:
            raise self._unreachable(answer, timeout_s)
        known = answer.get(DELETE_RETENTION) if isinstance(answer, dict) else None
        return DEFAULT_DELETE_RETENTION_MS if known is None else int(known.value)

    def log_ranges(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], LogRange]:
        """Return the range of each partition (topic, number); raises `BrokerError` if the brokers do not
        answer.

        Topics and partitions that do not exist, that this user may not describe, or whose leader does not
        answer are left out.
        """
        topics = self._metadata(REQUEST_TIMEOUT_S).topics
        existing = [
            (topic, number)
            for topic, number in partitions
            if topic in topics and number in topics[topic].partitions
        ]
        earliest, latest = (
            self._list_offsets(existing, spec, IsolationLevel.READ_UNCOMMITTED)[0]
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        )
        return {
            key: LogRange(earliest[key], latest[key]) for key in existing if key in earliest and key in latest
        }

    def topic_ids(
        self, names: Iterable[str], timeout_s: float = QUICK_TIMEOUT_S
    ) -> dict[str, str | None] | None:
        """Return the ids of topics in the format of the tables; None for a topic that does not exist.

        `""` stands for a topic without an id (brokers before 2.8). Topics that this user may not describe and
        invalid names are left out. If nothing is answered in time, the result is None.
        """
        answers = self._describe(names, timeout_s)
        ids = {name: topic_id_of(answer) for name, answer in answers.items() if tells_of_topic(answer)}
        return ids if ids or not answers else None

    def topics(self, names: Iterable[str], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[str, TopicState]:
        """Return the current state of topics; raises `BrokerError` if no broker answers. Invalid names are
        left out (only brokers reject `.` and `..`), and topics without an answer."""
        answers = self._describe(names, timeout_s)
        if answers and all(map(is_silence, answers.values())):
            raise self._unreachable(next(iter(answers.values())), timeout_s)
        return {name: state for name, answer in answers.items() if (state := state_of(answer)) is not None}

    def log_offsets(
        self, partitions: Iterable[tuple[str, int]], *, earliest: bool, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> dict[tuple[str, int], int | str]:
        """Return the log end (or, `earliest`, the log start) of existing partitions: the offset, or Kafka's
        name of the error. A silent leader is `REQUEST_TIMED_OUT`.

        The log end is the high watermark, as in Kafka's tools.
        """
        spec = OffsetSpec.earliest() if earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]
        keys = list(partitions)
        parts = [keys[at : at + _ASKED_TOGETHER] for at in range(0, len(keys), _ASKED_TOGETHER)]
        asked = [self._ask_together(part, spec, timeout_s) for part in parts]
        found = dict[tuple[str, int], int | str]()
        for part, future in zip(parts, asked, strict=True):
            answers = answer_of(future)
            if isinstance(answers, KafkaException):
                found |= dict.fromkeys(part, offset_of(answers))
                continue
            for one, answer in answers.items():
                answered = KafkaException(answer) if isinstance(answer, KafkaError) else answer
                found[one.topic, one.partition] = offset_of(answered)
        if any(answer in MOVED for answer in found.values()):
            self._learn_leaders()
        return found

    def _describe(self, names: Iterable[str], timeout_s: float) -> dict[str, Any]:
        """Describe topics; brokers with auto-creation do not create them."""
        wanted = sorted(name for name in set(names) if _TOPIC_NAME.fullmatch(name))
        if not wanted:
            return {}
        asked = self._admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
        return {name: answer_of(future) for name, future in asked.items()}

    def _metadata(self, timeout_s: float) -> Any:
        self._admin.poll(0)  # or log lines would pile up
        # all topics: a request by name would make brokers with auto-creation create the topic
        try:
            metadata = self._admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise self._unreachable(error, timeout_s) from error
        if metadata.brokers:
            self._answered()
        return metadata

    def _list_offsets(
        self, partitions: Iterable[tuple[str, int]], spec: OffsetSpec, isolation: IsolationLevel
    ) -> tuple[dict[tuple[str, int], int], KafkaException | None]:
        """Return the offsets of the partitions that answered, and a failure of another, if any."""
        return self._offsets(self._ask_offsets(partitions, spec, isolation, REQUEST_TIMEOUT_S))

    def _ask_offsets(
        self,
        partitions: Iterable[tuple[str, int]],
        spec: OffsetSpec,
        isolation: IsolationLevel,
        timeout_s: float,
    ) -> "Mapping[TopicPartition, Future[Any]]":
        asked = {TopicPartition(topic, number): spec for topic, number in partitions}
        if not asked:
            return {}
        return self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)

    def _ask_together(
        self, partitions: Iterable[tuple[str, int]], spec: OffsetSpec, timeout_s: float
    ) -> "Future[Any]":
        """As `AdminClient.list_offsets`, with one future for all partitions: one for each would take four
        times as long as the request."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        asked = [TopicPartition(topic, number, int(spec._value)) for topic, number in partitions]
        isolation = IsolationLevel.READ_UNCOMMITTED.value
        super(AdminClient, self._admin).list_offsets(
            asked, future, isolation_level_value=isolation, request_timeout=timeout_s
        )
        return future

    def _offsets(
        self, futures: "Mapping[TopicPartition, Future[Any]]"
    ) -> tuple[dict[tuple[str, int], int], KafkaException | None]:
        """Wait for answers; return the offsets of the partitions that answered, and a failure of another, if
        any."""
        found: dict[tuple[str, int], int] = {}
        failure: KafkaException | None = None
        for partition, future in futures.items():
            answer = answer_of(future)
            if isinstance(answer, KafkaException):
                failure = answer
            elif answer.offset < _NO_OFFSET:
                failure = _TIMED_OUT
            else:
                found[partition.topic, partition.partition] = answer.offset
        if found:
            self._answered()
        self._may_have_moved = failure is not None
        # a broker refused, perhaps because it is no longer the leader
        if failure is not None and failure.args[0].code() > 0:
            self._learn_leaders()
        return found, failure

    def _learn_leaders(self) -> None:
        """Refresh the leaders of the partitions for the next request. librdkafka itself does so every few
        minutes, and until then repeats requests that brokers refuse."""
        self._may_have_moved = False
        with suppress(BrokerError):
            self._metadata(QUICK_TIMEOUT_S)

    def _answered(self) -> None:
        self._log.answered()
        self._was_answered = True
        self._answered_at = time.monotonic()

    def _newest_failure(self) -> str:
        """Return why the last connection failed; empty if none has."""
        self._admin.poll(0)  # delivers librdkafka's log lines
        return self._log.last

    def _no_token(self) -> BrokerError:
        if self._log.is_signing_refused_for(self._source.connect_timeout_ms / 1_000):
            kind: type[BrokerError] = AccessRefusedError
        else:
            kind = TokenRefusedError if self._log.is_signing_refused_for(0) else BrokerError
        return kind(
            f"signing in at {self._source.bootstrap_servers}: expected a token within 10 s, found none "
            f"({self._log.last or 'no answer'}). Check the credentials of AWS (docs/security.md)."
        )

    def _unreachable(self, error: KafkaException, timeout_s: float) -> BrokerError:
        failure = self._newest_failure()
        is_refused = self._log.is_refused_for(self._source.connect_timeout_ms / 1_000)
        is_silent = time.monotonic() - self._answered_at > _SILENT_FOR_S
        # the certificates or the token of this client may be too old, or it no longer connects;
        # credentials for signing are read again anyway
        if (self._log.is_refused and not self._log.cannot_sign) or is_silent:
            is_first = self._was_answered
            with suppress(MisuseError):  # a file that is being replaced: the next failure tries again
                self.sign_in_again()
                is_refused = is_refused and not is_first
        kind = AccessRefusedError if is_refused else BrokerError
        return kind(
            f"asking {self._source.bootstrap_servers} about topic {self._source.topic}: "
            f"expected an answer within {timeout_s:g} s, found: {error.args[0].str()}"
            f"{f' ({failure})' if failure else ''}. "
            "Check --bootstrap-server, the network, the security settings (--command-config), and the "
            "permissions of their user."
        )


def settings_of_broker(configs: Mapping[str, Any]) -> BrokerSettings | None:
    """Return the settings in the configs of one broker; None if they lack the retention, as those of other
    makers may."""
    if not {RETENTION, CHECK_INTERVAL} <= configs.keys():
        return None
    minutes, interval = (configs[name].value for name in (RETENTION, CHECK_INTERVAL))
    assignors = configs[ASSIGNORS].value if ASSIGNORS in configs else None
    return BrokerSettings(int(minutes) * MINUTE_MS, int(interval), first_assignor(assignors))


def _rest(seconds: float, give_up: Callable[[], bool]) -> bool:
    """Sleep until `give_up` returns true; return whether it did."""
    end = time.monotonic() + seconds
    while not (given_up := give_up()) and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _GIVE_UP_EVERY_S))
    return given_up
