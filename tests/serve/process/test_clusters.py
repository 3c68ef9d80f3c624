"""One `serve` for several clusters: none stops another, not at the start, not at the end, and not between."""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from assessed_world import AssessedWorld
from http_endpoint import Opened, opened
from kafka_clients import wait_until
from listening import Client
from metrics_read import Maker, Read, by, read
from metrics_world import MetricsWorld
from served_clusters import fill, filled, settings_naming

from streaming.common.times import now_ms
from streaming.demo.local_broker import free_ports
from streaming.serve.kafka.errors import Error
from streaming.serve.metrics.exposition import Exposition, Format, written
from streaming.serve.metrics.source import MetricsSource
from streaming.tables.tables import Tables

POSITION = "offsetlake_group_topic_position"


def positions(told: Read) -> dict[Any, float]:
    """The position of `g` by cluster."""
    return by(told.get(POSITION, {}), "cluster")


soon = partial(wait_until, timeout_s=60)
"""A reading that fails is tried again after ten times as long as it took, which on a busy machine is long."""


def as_told(endpoint: Opened, style: Format = "text") -> Read:
    accept = {"text": "text/plain", "openmetrics": "application/openmetrics-text"}[style]
    answer = endpoint.ask("/metrics", accept=accept)
    assert answer.status == 200, answer
    return read(answer.body, style)


# --- one exposition --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MetricsSource]:
    """What is known of two clusters: the second has other groups, and metrics that the first lacks."""
    now = now_ms()
    worlds = {
        "a": AssessedWorld(tmp_path_factory.mktemp("a"), now, 7),
        "b": MetricsWorld(tmp_path_factory.mktemp("b"), now),
    }
    return {
        name: replace(Maker(world.tables, now, granularity="partition").source(), cluster=name)
        for name, world in worlds.items()
    }


def text_of(settings: Any, sources: Sequence[MetricsSource], style: Format) -> bytes:
    exposition = Exposition(settings, [source.cluster for source in sources])
    return b"".join(written(exposition.families(*sources), style))


@pytest.mark.parametrize("style", ["text", "openmetrics"])
@pytest.mark.parametrize("names", ["offsetlake", "kafka_exporter", "kafka-lag-exporter", "kminion"])
def test_series_of_clusters_are_those_of_each_with_its_name(
    sources: Mapping[str, MetricsSource], names: str, style: Format
) -> None:
    settings = replace(sources["a"].settings.metrics, names=names)
    told = read(text_of(settings, [*sources.values()], style), style)
    alone = {
        name: read(text_of(settings, [replace(source, cluster="")], style), style)
        for name, source in sources.items()
    }
    assert alone["a"].keys() != alone["b"].keys()
    assert told.keys() == alone["a"].keys() | alone["b"].keys()
    for metric, series in told.items():
        for name, own in alone.items():
            expected = {
                tuple(sorted([*_named(labels, name), ("cluster", name)])): value
                for labels, value in own.get(metric, {}).items()
            }
            found = {labels: value for labels, value in series.items() if ("cluster", name) in labels}
            assert found == expected, metric
        assert {dict(labels)["cluster"] for labels in series} <= {"a", "b"}


def _named(labels: Sequence[tuple[str, str]], cluster: str) -> list[tuple[str, str]]:
    """Labels of kafka-lag-exporter have the name of the cluster in place of its id."""
    return [(label, cluster if label == "cluster_name" else value) for label, value in labels]


def test_each_metric_is_described_once_and_its_series_are_together(
    sources: Mapping[str, MetricsSource],
) -> None:
    lines = text_of(sources["a"].settings.metrics, [*sources.values()], "text").decode().splitlines()
    described = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(described) == len(set(described)) > 40
    metric = ""
    for line in lines:
        if line.startswith("# "):
            metric = line.split()[2]
        else:
            assert line.partition("{")[0] == metric


def test_promtool_finds_no_fault_with_metrics_of_clusters(sources: Mapping[str, MetricsSource]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (apt-get install prometheus)")
    text = text_of(sources["a"].settings.metrics, [*sources.values()], "text")
    ran = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_each_cluster_has_its_own_limit_of_series(sources: Mapping[str, MetricsSource]) -> None:
    settings = replace(sources["a"].settings.metrics, max_series=150)
    exposition = Exposition(settings, list(sources))
    told = read(b"".join(written(exposition.families(*sources.values()), "text")))
    for name, source in sources.items():
        alone = read(text_of(settings, [replace(source, cluster="")], "text"))
        withheld = {
            labels: value
            for labels, value in told["offsetlake_groups_withheld"].items()
            if ("cluster", name) in labels
        }
        assert list(withheld.values()) == list(alone["offsetlake_groups_withheld"].values()) != [0]
    assert all("max_series" in lacks for lacks in exposition.lacks.values())


# --- a cluster that fails --------------------------------------------------------------------------------


def test_tables_of_one_cluster_come_vanish_and_come_again_beside_the_other(tmp_path: Path) -> None:
    roots = {"shop": str(tmp_path / "shop"), "bank": str(tmp_path / "bank")}
    shop = filled(tmp_path / "shop", committed=7)
    with opened(roots) as endpoint:
        told = as_told(endpoint)
        assert positions(told) == {"shop": 7}
        assert by(told["offsetlake_tables_readable"], "cluster") == {"shop": 1, "bank": 0}
        ready = endpoint.ask("/readyz")
        assert (ready.status, ready.body) == (
            200,
            b"ready, except bank: the tables cannot be read, or the job is not alive\n",
        )
        filled(tmp_path / "bank", committed=8)
        soon(lambda: positions(as_told(endpoint, "openmetrics")) == {"shop": 7, "bank": 8}, "the bank")
        assert endpoint.ask("/readyz").body == b"ready\n"
        shutil.rmtree(shop.root)
        soon(
            lambda: by(as_told(endpoint)["offsetlake_tables_readable"], "cluster") == {"shop": 0, "bank": 1},
            "the shop to be missed",
        )
        fill(Tables(roots["bank"]), committed=9)
        soon(lambda: positions(as_told(endpoint))["bank"] == 9, "the bank to go on")
        assert b"except shop" in endpoint.ask("/readyz").body
        filled(tmp_path / "shop", committed=10)
        soon(lambda: positions(as_told(endpoint)) == {"shop": 10, "bank": 9}, "both")
        shutil.rmtree(roots["shop"])
        shutil.rmtree(roots["bank"])
        soon(lambda: endpoint.ask("/readyz").status == 503, "none to be ready")
        assert endpoint.ask("/readyz").body.startswith(b"not ready: ")
    assert [
        text for text in endpoint.said if text.startswith("cluster shop: the in-memory snapshot of offsets")
    ]
    assert not [text for text in endpoint.said if not text.startswith("cluster ")]


def test_who_needs_no_token_is_told_no_names_where_others_need_one(tmp_path: Path) -> None:
    filled(tmp_path / "shop", committed=7)
    roots = {"shop": str(tmp_path / "shop"), "bank": str(tmp_path / "bank")}
    with opened(roots, token="a-token-of-some-length") as endpoint:
        ready = endpoint.ask("/readyz")
        assert (ready.status, ready.body) == (200, b"ready\n")


class HangingTables:
    """Tables whose storage says nothing."""

    def __init__(self, limit_s: float) -> None:
        self._limit = time.monotonic() + limit_s

    def ask(self, *_: Any, **named: Any) -> Any:
        time.sleep(max(0.0, self._limit - time.monotonic()))
        raise OSError("the storage does not answer")


@pytest.mark.more
@pytest.mark.slow
def test_a_cluster_that_cannot_be_assessed_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.serve.process.metrics_source.LONGEST_WAIT_S", 1.0)
    roots = {name: str(tmp_path / name) for name in ("one", "two", "three")}
    for name in roots:
        filled(tmp_path / name, committed=7)
    with opened(roots) as endpoint:
        for cluster in endpoint.telling._clusters[:2]:
            cluster.refresher._tables = HangingTables(10)  # type: ignore[assignment]
        began = time.monotonic()
        assert positions(as_told(endpoint)) == {"three": 7}
        made = endpoint.telling.publisher._count
        wait_until(lambda: endpoint.telling.publisher._count > made + 5, "more bodies", timeout_s=5)
        assert time.monotonic() - began < 9  # while both hang


# --- the process -----------------------------------------------------------------------------------------


SLOW = """
import os
import time
from streaming.cli.main import main
from streaming.serve.memory.tailer import Tailer

poll = Tailer.poll

def slowly(self, **how):
    while self._tables.root.endswith("slow") and not os.path.exists(os.environ["TABLES_THERE"]):
        time.sleep(0.01)
    return poll(self, **how)

Tailer.poll = slowly
main()
"""
"""A serve that needs long to read the tables in a folder `slow` for the first time: until a file is there."""


class Served:
    """A process of two clusters, `quick` and `slow`, with a Kafka listener each."""

    def __init__(self, root: Path, *, program: Sequence[str], clusters: Sequence[str]) -> None:
        self.there = root / "there"
        self.ports = dict(zip(["http", *clusters], free_ports(1 + len(clusters)), strict=True))
        kafka = [(name, self.ports[name]) for name in clusters]
        config = settings_naming(
            {name: root / name for name in clusters}, root / "settings.toml", kafka=kafka
        )
        command = [sys.executable, *program, "serve", "--config", str(config)]
        self.process = subprocess.Popen(
            [*command, "--http", f"127.0.0.1:{self.ports['http']}"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TABLES_THERE": str(self.there)},
        )

    def position(self, cluster: str) -> tuple[int, int]:
        """The error, and the offset of `g`, that a client of a cluster is told."""
        with closing(Client(f"127.0.0.1:{self.ports[cluster]}")) as client:
            asked = [{"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [0]}]}]
            [answered] = client.ask(9, 9, {"groups": asked})["groups"]
        if answered["errorCode"]:
            return answered["errorCode"], -1
        return 0, answered["topics"][0]["partitions"][0]["committedOffset"]

    def metrics(self) -> Read:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['http']}/metrics", timeout=40) as answer:
            return read(answer.read())

    def ready(self) -> int:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.ports['http']}/readyz", timeout=10
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def lines(self, *wanted: str) -> list[str]:
        """Return what it says, until it has said all that is wanted."""
        said = list[str]()
        assert self.process.stderr is not None
        while not all(any(text in line for line in said) for text in wanted):
            said.append(self.process.stderr.readline())
            assert said[-1], said
        return said

    def end(self) -> str:
        """Stop it, and return the rest of what it says."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(10) == 0
        assert self.process.stderr is not None
        return self.process.stderr.read()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    running: list[Served] = []

    def start(*clusters: str, program: Sequence[str] = ("-m", "streaming.cli")) -> Served:
        running.append(Served(tmp_path, program=program, clusters=clusters))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.communicate()


def test_kafka_clients_are_answered_for_the_cluster_of_their_listener(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    for name, committed in (("shop", 7), ("bank", 8)):
        filled(tmp_path / name, committed=committed)
    served = serve("shop", "bank", "none")
    clusters = [f"127.0.0.1:{served.ports[name]} for cluster {name}\n" for name in ("shop", "bank", "none")]
    served.lines("answering HTTP", *clusters)
    assert (served.position("shop"), served.position("bank")) == ((0, 7), (0, 8))
    assert served.position("none") == (Error.COORDINATOR_LOAD_IN_PROGRESS, -1)
    told = served.metrics()
    assert positions(told) == {"shop": 7, "bank": 8}
    requests = by(told["offsetlake_kafka_requests_total"], "cluster", "api", "version")
    assert {of[0]: count for of, count in requests.items() if of[1] == "OffsetFetch" and count} == {
        "shop": 1,
        "bank": 1,
        "none": 1,
    }
    filled(tmp_path / "none", committed=9)
    wait_until(lambda: served.position("none") == (0, 9), "the third cluster")
    assert "stopped" in served.end()


@pytest.mark.more
@pytest.mark.slow
def test_a_cluster_that_is_read_slowly_holds_up_neither_the_others_nor_the_end(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    for name, committed in (("quick", 7), ("slow", 8)):
        filled(tmp_path / name, committed=committed)
    served = serve("quick", "slow", program=["-c", SLOW])
    served.lines(
        "answering HTTP",
        f"{served.ports['quick']} for cluster quick",
        "cluster slow: reading the tables takes long",
    )
    assert (served.position("quick"), served.position("slow")[0]) == (
        (0, 7),
        Error.COORDINATOR_LOAD_IN_PROGRESS,
    )
    told = served.metrics()
    assert (positions(told), served.ready()) == ({"quick": 7}, 200)
    assert by(told["offsetlake_tables_readable"], "cluster") == {"quick": 1, "slow": 0}
    served.there.touch()
    assert served.lines("answering")[-1].endswith(f"{served.ports['slow']} for cluster slow\n")
    assert served.position("slow") == (0, 8)
    assert "stopped" in served.end()


@pytest.mark.more
@pytest.mark.slow
def test_a_signal_ends_it_while_clusters_are_read_for_the_first_time(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    for name in ("quick", "slow", "also-slow"):
        filled(tmp_path / name, committed=7)
    served = serve("quick", "slow", "also-slow", program=["-c", SLOW])
    served.lines("for cluster quick")
    began = time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(40) == 0
    assert time.monotonic() - began < 25  # both hang: what is waited for them does not add up
