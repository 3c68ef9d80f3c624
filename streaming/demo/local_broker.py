"""A real Kafka broker of one node on loopback, run from the cached jars: for the demo and the tests.

    with LocalBroker(directory) as broker:
        consume(broker.bootstrap_servers)

The broker never outlives its owner: it is a `Child`.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from streaming.common.conf_dir import conf_dir
from streaming.demo.child import Child
from streaming.jvm.jars import ensure_jars
from streaming.jvm.java import find_java
from streaming.model.errors import OffsetlakeError

_READY: Final = "Kafka Server started"
_START_LIMIT: Final = 60.0  # seconds; usually 2
_SHOWN_LINES: Final = 25  # of the log, after a failure
_CLUSTER_ID: Final = "b2Zmc2V0bGFrZS1sb2NhbA"  # any 16 bytes in base64url: "offsetlake-local"

# Below the ephemeral ports: there, a client that reconnects to a stopped broker would sometime connect to
# itself.
_PORTS: Final = range(20_000, 32_000)


class LocalBrokerError(OffsetlakeError):
    """An operation of the local broker failed."""

    @classmethod
    def failed(
        cls, doing: str, *, expected: str, found: str, log: Path, log_size_before: int
    ) -> "LocalBrokerError":
        """Include the broker's log since the operation began."""
        said = _relevant_lines(_read_text(log)[log_size_before:])
        return cls(f"{doing}: expected {expected}, found {found}. From {log}:\n{said}")


class LocalBroker:
    """A single-node KRaft broker in a directory of its own; data and ports survive restarts.

    `overrides` replace settings of `server_properties`; `listeners` are security protocols (such as SASL_SSL)
    served besides PLAINTEXT, each on a port of its own. `advertised` maps protocols to ports that are
    advertised instead, such as those of a proxy. `java_options` are more options of its JVMs.
    """

    def __init__(
        self,
        directory: Path,
        *,
        offsets_partitions: int = 8,
        overrides: Mapping[str, str | int] | None = None,
        listeners: Sequence[str] = (),
        advertised: Mapping[str, int] | None = None,
        heap: str = "512m",
        jars: Path | None = None,
        classes: Path | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.directory = directory.resolve()
        self.log = self.directory / "broker.log"
        self._offsets_partitions = offsets_partitions
        self._overrides = dict(overrides or {})
        self._advertised = dict(advertised or {})
        self._heap = heap
        self._jars = jars
        self._classes = classes
        self._java_options = tuple(java_options)
        protocols = ("PLAINTEXT", *listeners, "CONTROLLER")
        self._ports = dict(zip(protocols, free_ports(len(protocols)), strict=True))
        self._child: Child | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients; the same after restarts."""
        return self.bootstrap_servers_of("PLAINTEXT")

    def bootstrap_servers_of(self, protocol: str) -> str:
        return f"127.0.0.1:{self._ports[protocol]}"

    @property
    def pid(self) -> int:
        if self._child is None:
            raise LocalBrokerError(f"asking for the pid of the broker in {self.directory}: it is not running")
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.is_running

    def start(self) -> None:
        """Start the broker and wait until it serves clients; format its directory the first time."""
        if self.is_running:
            return
        jars = self._jars or ensure_jars("broker")
        properties = self._write_properties()
        if not (self.directory / "data" / "meta.properties").exists():
            self._format(jars, properties)
        log_size_before = len(_read_text(self.log))
        self._launch(jars, properties)
        try:
            self._wait_until_ready(log_size_before)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut the broker down; kill it if that takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Shut the broker down and start it again with the same data and ports."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _write_properties(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        settings = server_properties(
            self.directory / "data",
            ports=self._ports,
            advertised=self._advertised,
            offsets_partitions=self._offsets_partitions,
        )
        lines = (f"{name}={value}\n" for name, value in (settings | self._overrides).items())
        properties.write_text("".join(lines))
        return properties

    def _format(self, jars: Path, properties: Path) -> None:
        # The first compiler tier and the serial collector: 0.6 s instead of 1 s for a program this short.
        quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._java_options)
        tool = [*_java(jars, *quick), "kafka.tools.StorageTool"]
        arguments = ["format", "--cluster-id", _CLUSTER_ID, "--config", str(properties)]
        log_size_before = len(_read_text(self.log))
        with self.log.open("ab") as output:
            exit_code = subprocess.run([*tool, *arguments], stdout=output, stderr=output).returncode
        if exit_code != 0:
            raise LocalBrokerError.failed(
                f"formatting {self.directory / 'data'}",
                expected="exit code 0",
                found=f"exit code {exit_code}",
                log=self.log,
                log_size_before=log_size_before,
            )

    def _launch(self, jars: Path, properties: Path) -> None:
        logging = f"-Dlog4j2.configurationFile={conf_dir() / 'log4j2-broker.properties'}"
        options = (f"-Xmx{self._heap}", logging, *self._java_options)
        command = [*_java(jars, *options, classes=self._classes), "kafka.Kafka", str(properties)]
        # Kafka leaves files in its working directory.
        self._child = Child(command, log=self.log, directory=self.directory)

    def _wait_until_ready(self, log_size_before: int) -> None:
        deadline = time.monotonic() + _START_LIMIT
        while _READY not in _read_text(self.log)[log_size_before:]:
            if not self.is_running:
                raise self._not_ready("that its process ended", log_size_before)
            if time.monotonic() > deadline:
                raise self._not_ready(f"nothing of the kind in {_START_LIMIT:.0f} s", log_size_before)
            time.sleep(0.05)

    def _not_ready(self, found: str, log_size_before: int) -> LocalBrokerError:
        return LocalBrokerError.failed(
            f"starting a broker in {self.directory}",
            expected=f"it to say {_READY!r}",
            found=found,
            log=self.log,
            log_size_before=log_size_before,
        )

    def _end(self, how: signal.Signals) -> None:
        if self._child is not None:
            self._child.end(how)
        self._child = None


def server_properties(
    data: Path,
    *,
    ports: Mapping[str, int],
    offsets_partitions: int,
    advertised: Mapping[str, int] | None = None,
) -> dict[str, str | int]:
    """Return the settings of a broker and controller in one process, with every replication factor 1.

    `ports` are by security protocol, and of the listener CONTROLLER; `advertised` ports replace them for
    clients.
    """
    listeners = _addresses(ports)
    told = _addresses({**ports, **(advertised or {})})
    protocols = {name: "PLAINTEXT" if name == "CONTROLLER" else name for name in ports}
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{ports['CONTROLLER']}",
        "listeners": ",".join(listeners.values()),
        "advertised.listeners": ",".join(told[name] for name in ports if name != "CONTROLLER"),
        "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in ports),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "offsets.topic.num.partitions": offsets_partitions,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3000,  # a start after a crash waits for the old session to expire
        "group.initial.rebalance.delay.ms": 0,  # no wait for further members of a new group
        "log.cleaner.dedupe.buffer.size": 2 * 1024 * 1024,  # the default of 128 MiB does not fit a small heap
    }


def _addresses(ports: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{name}://127.0.0.1:{port}" for name, port in ports.items()}


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which no process listens now."""
    candidates = random.sample(_PORTS, k=len(_PORTS))
    return [port for port, _ in zip(_free(candidates), range(count), strict=False)]


def free_port(preferred: int) -> int:
    """Return this port of 127.0.0.1 if no process listens on it, else another one."""
    return next(_free([preferred]), None) or free_ports(1)[0]


def _free(ports: list[int]) -> Iterator[int]:
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            yield port


def _java(jars: Path, *options: str, classes: Path | None = None) -> list[str]:
    path = f"{jars}{os.sep}*" if classes is None else f"{jars}{os.sep}*{os.pathsep}{classes}"
    return [str(find_java()), *options, "-cp", path]


def _relevant_lines(log: str) -> str:
    """Return the log from its first error, else its end: a long shutdown may follow an error."""
    lines = log.splitlines()
    errors = (number for number, line in enumerate(lines) if " ERROR " in line or " FATAL " in line)
    first = next(errors, len(lines) - _SHOWN_LINES)
    return "\n".join(lines[max(0, first) :][:_SHOWN_LINES])


def _read_text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
