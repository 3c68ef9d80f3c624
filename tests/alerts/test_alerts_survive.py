"""Whatever ends the job, and wherever: no alert is lost, none opens twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alert_tables import DAY, EMPTY, HOUR, RETENTION, Lake, alert_settings
from http_receiver import HttpReceiver, running_receiver
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_clients import wait_until
from new_tables import new_tables

from streaming.alerts.episodes import Episode
from streaming.alerts.evaluation import Evaluator
from streaming.alerts.table import AlertTable
from streaming.common.times import now_ms
from streaming.expiry.causes import EXPIRED

# --- killed between opening and delivering ---------------------------------------------------------------


@pytest.fixture
def hook() -> Iterator[HttpReceiver]:
    with running_receiver() as receiver:
        yield receiver


class Command:
    """`offsetlake alerts --evaluate` on a lake, with a webhook that may kill it."""

    def __init__(self, lake: Lake, hook: HttpReceiver, directory: Path) -> None:
        self._hook = hook
        config = directory / "alerts.toml"
        config.write_text(f'[alerts.webhook]\nurl = "{hook.url}"\n[job]\nheartbeat_every = "1ms"\n')
        self._arguments = ["alerts", "--evaluate", "--table-root", lake.tables.root, "--config", str(config)]
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> int:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streaming.cli", *self._arguments], stdout=subprocess.PIPE, text=True
        )
        self._process.communicate(timeout=120)
        return self._process.returncode

    def kill(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(30)


def nothing() -> None:
    pass


@pytest.mark.more
@pytest.mark.parametrize(
    ("moment", "copies"), [pytest.param("before", 1, marks=pytest.mark.more), ("after", 2)]
)
def test_kill_9_between_opening_and_delivering_loses_nothing(
    moment: str, copies: int, hook: HttpReceiver, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake", start=now_ms())
    lake.commit("billing", at=lake.now - RETENTION + HOUR)
    command = Command(lake, hook, tmp_path)
    setattr(hook, moment, command.kill)
    assert command.run() == -signal.SIGKILL
    assert [(e.finding.group, e.revision) for e in lake.episodes()] == [("billing", 1)]
    hook.before = hook.after = nothing
    wait_until(lambda: bool(hook.bodies), "the end of the request that was cut off")
    if moment == "before":
        hook.bodies.clear()  # what was cut off in the middle did not arrive
    assert command.run() == 0
    assert command.run() == 0
    assert len(hook.bodies) == copies  # a receiver that was told can recognize the second by its id
    assert len({(body["id"], body["revision"]) for body in hook.bodies}) == 1
    assert len(lake.episodes()) == 1


# --- random histories ------------------------------------------------------------------------------------

Step = Callable[[Lake], None]
GROUPS = st.sampled_from(["a", "b", "console-consumer-1", "console-consumer-2"])


def steps() -> st.SearchStrategy[Step]:
    """Things that happen to a lake."""
    ages = st.sampled_from([0, RETENTION - DAY, RETENTION - HOUR])
    return st.one_of(
        st.builds(lambda group, age: lambda lake: lake.commit(group, at=lake.now - age), GROUPS, ages),
        st.builds(lambda group: lambda lake: lake.drop(group, cause=EXPIRED), GROUPS),
        st.builds(lambda group: lambda lake: lake.set_group(group, **STABLE), GROUPS),
        st.sampled_from([HOUR, DAY]).map(lambda time: lambda lake: lake.pass_time(time)),
        st.just(hold_back),
        st.just(die_for_a_while),
    )


STABLE: dict[str, Any] = EMPTY | {"state": "Stable", "subscribed_topics": ["orders"], "protocol": "range"}


def hold_back(lake: Lake) -> None:
    lake.held_back = set() if lake.held_back else {0}
    lake.pass_time(60_000)


def die_for_a_while(lake: Lake) -> None:
    lake.now += 2 * HOUR


@pytest.mark.more
@settings(max_examples=6)
@given(history=st.lists(steps(), min_size=4, max_size=9))
def test_a_restart_at_every_point_gives_the_same_episodes(
    history: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("lakes")
    lake = Lake(directory / "uninterrupted")
    restarted = new_tables(directory / "restarted")

    def restart() -> Evaluator:
        return Evaluator(
            lake.tables,
            AlertTable(restarted),
            alert_settings(),
            receivers=["log"],
            ask_log_ranges=None,
            clock=lambda: lake.now,
        )

    lasting = lake.evaluator()
    for step in history:
        step(lake)
        lasting.evaluate()
        restart().evaluate()
        assert restart().evaluate() == []  # a second evaluation changes nothing
    assert episodes(AlertTable(restarted)) == episodes(AlertTable(lake.tables))
    going_on = [(e.rule, e.finding.subject) for e in lake.episodes() if e.is_open]
    assert len(set(going_on)) == len(going_on)


def episodes(alerts: AlertTable) -> dict[str, Episode]:
    return {told.episode.id: told.episode for told in alerts.read().episodes()}
