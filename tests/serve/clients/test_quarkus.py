"""The pages for Kafka in Quarkus' Dev UI show the same of a broker and of the listener, in a browser.

Only `make test-clients` runs this (it sets CLIENTS). What a machine lacks is skipped, with its reason.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import browser
import client_programs
import pytest
from browser import Browser
from client_programs import MissingError
from kafka_clients import wait_until
from kafka_versions import KafkaVersion
from kafka_world import EMPTY, kafka_world
from listening import CLUSTER_ID, listening
from object_store import accepts

from streaming.common.times import now_ms
from streaming.demo.local_broker import free_ports

NO_BROWSER = browser.why_not()

pytestmark = [
    pytest.mark.clients,
    pytest.mark.broker,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif("CLIENTS" not in os.environ, reason="`make test-clients` runs it"),
    pytest.mark.skipif(NO_BROWSER is not None, reason=str(NO_BROWSER)),
    pytest.mark.timeout(1_800),  # the first time Quarkus is downloaded
]

Grid = list[list[str]]
"""The texts of the cells of a table, by row."""

WITHIN = """
const within = (root) => [...root.querySelectorAll('*')].flatMap(
  (one) => one.shadowRoot ? [one, ...within(one.shadowRoot)] : [one]);
"""
"""All elements, also those of shadow trees."""
GRIDS = (
    WITHIN
    + """
const [name] = arguments;
const page = within(document).find((one) => one.localName == name);
return [...(page?.shadowRoot?.querySelectorAll('vaadin-grid') ?? [])].map((grid) =>
  [...grid.shadowRoot.querySelectorAll('#items > tr:not([hidden])')].map((row) =>
    [...row.querySelectorAll('slot')].map((slot) =>
      slot.assignedElements().map((cell) => cell.textContent.trim()).join())));
"""
)
CLICK = (
    WITHIN
    + """
const [text] = arguments;
within(document).find(
  (one) => one.localName == 'vaadin-grid-cell-content' && one.textContent.trim() == text).click();
"""
)


@contextmanager
def dev_ui(quarkus: Sequence[str], bootstrap: str, folder: Path) -> Iterator[Browser]:
    """Run the application in dev mode with these brokers, and look at its pages."""
    [port] = free_ports(1)
    settings = [f"-Dquarkus.http.port={port}", f"-Dkafka.bootstrap.servers={bootstrap}"]
    shutil.copytree(client_programs.QUARKUS, folder)
    log = folder / "dev.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*quarkus, *settings],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def is_ready() -> bool:
        assert process.poll() is None, log.read_text()[-3_000:]
        return accepts(port)

    try:
        wait_until(is_ready, f"Quarkus ({log})", timeout_s=600)
        with browser.browsing(f"http://127.0.0.1:{port}/q/dev-ui/quarkus-kafka-client") as seen:
            yield seen
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def grids(seen: Browser, page: str) -> list[Grid]:
    """Return the tables of the page that is shown, once they have their rows; in an order of their own."""
    read: list[list[Grid]] = [[]]

    def has_settled() -> bool:
        read.append([sorted(rows) for rows in seen.run(GRIDS, f"qwc-kafka-{page}")])
        are_rendered = all(any(row) for rows in read[-1] for row in rows)
        return read[-1] == read[-2] != [] and are_rendered

    wait_until(has_settled, f"the page {page}", timeout_s=120)
    return read[-1]


def shown(quarkus: Sequence[str], bootstrap: str, folder: Path) -> dict[str, list[Grid]]:
    """Return the tables of each page, and the members of one group."""
    with dev_ui(quarkus, bootstrap, folder) as seen:
        found = dict[str, list[Grid]]()
        for page in ("topics", "access-control-list", "nodes", "consumer-groups"):
            seen.go(f"/{page}")
            found[page] = grids(seen, page)
        seen.run(CLICK, "classic")
        wait_until(lambda: grids(seen, page) != found[page], "the members of a group")
        found["members"] = grids(seen, page)
        return found


def test_the_dev_ui_shows_the_same(kafka_version: KafkaVersion, java_jars: Path, tmp_path: Path) -> None:
    try:
        quarkus = client_programs.quarkus()
    except MissingError as missing:
        pytest.skip(str(missing))
    with kafka_world(kafka_version, java_jars, tmp_path) as world:
        now = now_ms()  # else log ends become unknown after minutes
        with listening(world.tables, clock=lambda: now) as endpoint:
            found = shown(quarkus, endpoint.bootstrap, tmp_path / "of listener")
            assert endpoint.said == []
        expected = shown(quarkus, world.bootstrap, tmp_path / "of broker")
    [about, nodes] = found.pop("nodes")
    expected.pop("nodes")
    host, _, port = endpoint.bootstrap.partition(":")
    assert nodes == [["1", host, port]]
    assert ["Kafka cluster id", CLUSTER_ID] in about
    [topics] = expected["topics"]
    expected["topics"] = [[row for row in topics if row[0] != EMPTY]]
    assert found == expected
    [groups] = found["consumer-groups"]
    assert ["STABLE", "classic", "1", "range", "2", "35"] in groups
    assert ["EMPTY", "simple", "1", "", "0", "0"] in groups
    assert len(found["members"][0]) == 2
