"""Kafka's Java client as the job has it: Spark's own jars and options, the same settings, without Spark.

It runs in a JVM that this process starts and talks to through py4j: on 127.0.0.1, with a secret that the JVM
passes through a pipe. The JVM ends with this process, however that ends: its standard input is then closed.
"""

import importlib.util
import os
import re
import secrets
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from py4j.java_gateway import GatewayParameters, JavaGateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from streaming.brokers.client_settings import java_needs
from streaming.brokers.facts import NoAnswer
from streaming.common.interruptible import started
from streaming.jvm.java import find_java
from streaming.model.errors import OffsetlakeError
from streaming.settings.model import Settings, SourceSettings
from streaming.spark.java_errors import NO_MESSAGE, kind_and_message, quiet_py4j
from streaming.spark.source import GROUP_PREFIX, source_options

T = TypeVar("T")

_START_LIMIT_S: Final = 60.0  # usually 0.5
_POLL_MS: Final = 500
_DESERIALIZER: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_LOG: Final = (
    "-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider",  # log4j's core takes 0.7 s
    "-Dorg.apache.logging.log4j.simplelog.level=WARN",
)
_KINDS: Final = {
    "AuthorizationException": "denied",
    "AuthenticationException": "refused",
    "TimeoutException": "silent",
    "DisconnectException": "silent",
}
"""What an exception of Kafka's client means, by the end of its name."""

_CONNECTION: Final = re.compile(
    r"^(?:WARN|ERROR) NetworkClient .*?(Connection to node .*?)\.?$", re.MULTILINE
)


class JavaClientError(OffsetlakeError):
    """The JVM did not start, or ended."""

    @classmethod
    def of(cls, what: str, said: str) -> "JavaClientError":
        return cls(
            f"{what}; it said: {said or 'nothing'}. "
            'Check JAVA_HOME, JDK_JAVA_OPTIONS and "spark.driver.extraJavaOptions".'
        )


class ReadRecord(NamedTuple):
    """The partition, timestamp (ms; -1: none) and key of a record."""

    partition: int
    timestamp_ms: int
    key: bytes | None


class JavaClient:
    """A JVM within its `with` block, and requests by its Kafka client; each takes at most `limit_s`.

    Results of requests are `NoAnswer` where brokers do not answer; `JavaClientError` if the JVM has ended.
    """

    def __init__(
        self, settings: Settings, jars: Sequence[Path], partition_count: int, limit_s: float
    ) -> None:
        self._settings = client_settings(settings.source, partition_count)
        self._topic = settings.source.topic
        self._command = java_command(settings, jars)
        self._limit_ms = round(limit_s * 1_000)
        self._consumer: Any = None
        self._admin: Any = None

    def __enter__(self) -> Self:
        quiet_py4j()
        self._said = tempfile.TemporaryFile()
        self._jvm = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0
        )
        try:
            self._gateway = JavaGateway(gateway_parameters=self._parameters())
        except BaseException:
            self._end()
            raise
        self._java: Any = self._gateway.jvm
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, KeyboardInterrupt):
            with suppress(Py4JError, OSError):  # it has ended
                self._gateway.shutdown()
        self._end()

    def sign_in(self) -> str | NoAnswer:
        """Make a consumer and let it ask for all topics; return the release of the client."""

        def ask() -> str:
            self._consumer = self._java.org.apache.kafka.clients.consumer.KafkaConsumer(self._properties())
            self._consumer.listTopics(self._limit())
            return str(self._java.org.apache.kafka.common.utils.AppInfoParser.getVersion())

        return self._answer(ask)

    def own_group(self, partition: int) -> NoAnswer | None:
        """Ask for the committed offset of the consumer's own group, as Spark's connector does; None: brokers
        have answered.

        Brokers without an offsets topic create it when they are asked this.
        """

        def ask() -> None:
            self._consumer.committed(
                self._java.java.util.Collections.singleton(self._partition(partition)), self._limit()
            )

        return self._answer(ask)

    def read(self, positions: Mapping[int, int]) -> list[ReadRecord] | NoAnswer:
        """Read records from these offsets on, of each partition; at least one, unless there is none.

        The consumer joins no group.
        """

        def ask() -> list[ReadRecord] | NoAnswer:
            self._consumer.assign(self._list(map(self._partition, positions)))
            for partition, offset in positions.items():
                self._consumer.seek(self._partition(partition), offset)
            end = time.monotonic() + self._limit_ms / 1_000
            records: list[ReadRecord] = []
            while time.monotonic() < end:
                polled = self._consumer.poll(self._java.java.time.Duration.ofMillis(_POLL_MS))
                records += self._records(polled, positions)
                if polled.isEmpty() and (records or self._has_fetched(positions)):
                    return records
            return records or NoAnswer("silent", self._connection_failure() or "no records were returned")

        return self._answer(ask)

    def metadata_level(self) -> int | NoAnswer | None:
        """Return the highest `metadata.version` that a broker supports; None: it reports none."""

        def ask() -> int | None:
            result = self._admin_client().describeFeatures().featureMetadata()
            features = self._java.java.util.HashMap(self._got(result).supportedFeatures())
            levels = features.get("metadata.version")
            return None if levels is None else int(levels.maxVersion())

        return self._answer(ask)

    def controller_ms(self) -> int | NoAnswer | None:
        """Return the time of the active controller: a quorum describes its leader as of now. None: it does
        not.

        Requires Describe on the cluster.
        """

        def ask() -> int | None:
            quorum = self._got(self._admin_client().describeMetadataQuorum().quorumInfo())
            for voter in self._java.java.util.ArrayList(quorum.voters()):
                if voter.replicaId() == quorum.leaderId() and voter.lastCaughtUpTimestamp().isPresent():
                    return int(voter.lastCaughtUpTimestamp().getAsLong())
            return None

        return self._answer(ask)

    def _answer(self, ask: Callable[[], T]) -> T | NoAnswer:
        try:
            return started(ask).result()  # py4j itself fails when it is interrupted
        except Py4JJavaError as error:
            name, message = kind_and_message(error)
            kind: Any = next((_KINDS[end] for end in _KINDS if name.endswith(end)), "unknown")
            logged = self._connection_failure() if kind == "silent" else ""
            text = name if message == NO_MESSAGE else f"{name}: {message}"
            return NoAnswer(kind, f"{text} ({logged})" if logged else text)
        except (Py4JError, OSError, EOFError) as error:
            raise JavaClientError.of("Kafka's Java client has ended", self._last_said()) from error

    def _properties(self) -> Any:
        properties = self._java.java.util.Properties()
        for name, value in self._settings.items():
            properties.setProperty(name, value)
        return properties

    def _admin_client(self) -> Any:
        if self._admin is None:
            self._admin = self._java.org.apache.kafka.clients.admin.AdminClient.create(self._properties())
        return self._admin

    def _got(self, future: Any) -> Any:
        return future.get(self._limit_ms, self._java.java.util.concurrent.TimeUnit.MILLISECONDS)

    def _limit(self) -> Any:
        return self._java.java.time.Duration.ofMillis(self._limit_ms)

    def _partition(self, number: int) -> Any:
        return self._java.org.apache.kafka.common.TopicPartition(self._topic, number)

    def _list(self, items: Iterable[Any]) -> Any:
        made = self._java.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made

    def _records(self, polled: Any, partitions: Iterable[int]) -> list[ReadRecord]:
        return [
            ReadRecord(number, int(record.timestamp()), record.key())
            for number in partitions
            for record in self._java.java.util.ArrayList(polled.records(self._partition(number)))
        ]

    def _has_fetched(self, partitions: Iterable[int]) -> bool:
        """Whether brokers have answered a fetch of each partition: then the lag of the consumer is known."""
        return all(self._consumer.currentLag(self._partition(number)).isPresent() for number in partitions)

    def _connection_failure(self) -> str:
        """Return the newest line of Kafka's log about a connection."""
        lines = _CONNECTION.findall(self._said_text())
        return lines[-1] if lines else ""

    def _parameters(self) -> GatewayParameters:
        """Read the port and the secret that the JVM prints."""
        lines = [self._line(), self._line()]
        assert self._jvm.stdout is not None
        self._jvm.stdout.close()
        if not lines[0].isdecimal():
            raise JavaClientError.of("starting Kafka's Java client: the JVM did not start", self._last_said())
        return GatewayParameters(port=int(lines[0]), auth_token=lines[1], read_timeout=None)

    def _line(self) -> str:
        assert self._jvm.stdout is not None
        if not select.select([self._jvm.stdout], [], [], _START_LIMIT_S)[0]:
            return ""
        return self._jvm.stdout.readline().decode(errors="replace").strip()

    def _last_said(self) -> str:
        lines = self._said_text().strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _said_text(self) -> str:
        return os.pread(self._said.fileno(), 1 << 20, 0).decode(errors="replace")

    def _end(self) -> None:
        self._jvm.kill()
        self._jvm.wait()
        for pipe in (self._jvm.stdin, self._jvm.stdout, self._said):
            if pipe is not None:
                pipe.close()


def client_settings(source: SourceSettings, partition_count: int) -> dict[str, str]:
    """Return the settings of the consumer that Spark's connector would have, with a group of its own prefix,
    and without what might create a topic."""
    options = source_options(source, partition_count).items()
    return {
        **{name.removeprefix("kafka."): value for name, value in options if name.startswith("kafka.")},
        "key.deserializer": _DESERIALIZER,
        "value.deserializer": _DESERIALIZER,
        "group.id": f"{GROUP_PREFIX}-check-{secrets.token_hex(4)}",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": "false",
    }


def java_command(settings: Settings, jars: Sequence[Path]) -> list[str]:
    """Return the command of the JVM: with the class path and the options of the job's. `jars` are folders."""
    users = settings.spark.conf
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    own = [name.removeprefix("file://") for name in users.get("spark.jars", "").split(",")]
    paths = [*(f"{folder}/*" for folder in jars), users.get("spark.driver.extraClassPath", ""), *own]
    paths.append(str(Path(pyspark.origin).parent / "jars" / "*"))
    options = [*_LOG, "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    options += [f"-D{name}={value}" for name, value in java_needs(settings.source).properties.items()]
    options += shlex.split(users.get("spark.driver.extraJavaOptions", ""))
    server = ["py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
    return [str(find_java()), *options, "-cp", ":".join(filter(None, paths)), *server]
