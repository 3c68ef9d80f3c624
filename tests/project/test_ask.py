"""What pages show of the command is what it prints; docs/ask.md: thirty questions of a platform engineer, and
tables that hold what is planned for them."""

import re
from pathlib import Path
from typing import Any

import ask_world
import pyarrow.compute as pc
import pytest
from ask_transcript import COLUMNS, NOW, PAGE, Entry, entries, pages, printed, write_company
from ask_world import (
    BEGINS,
    BREAKS,
    COPIES,
    DELETES,
    EXPIRES,
    GROUPS,
    IDLE,
    LONG,
    RETENTION_MS,
    REWINDS,
    TOOL,
    TOPICS,
    WARNS,
    AskWorld,
    committed_offset,
)
from table_batches import as_ms

from streaming.alerts.table import AlertTable
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS
from streaming.expiry.causes import DELETED, EXPIRED
from streaming.expiry.rules import expiry
from streaming.model.completeness import Completeness
from streaming.settings.reading import read_settings

SHOWN = [(page, entry) for page in pages() for entry in entries(page.read_text())]
ENTRIES = entries(PAGE.read_text())
LAST = NOW - 4_000
"""The last heartbeat."""

Row = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ask")


@pytest.fixture(scope="module")
def world(folder: Path) -> AskWorld:
    return write_company(folder)


@pytest.fixture(scope="module")
def outputs(world: AskWorld, folder: Path) -> dict[str, str]:
    arguments = list({entry.arguments: 1 for _, entry in SHOWN})
    return dict(zip(arguments, printed(arguments, folder), strict=True))


@pytest.mark.parametrize(
    "entry",
    [entry for _, entry in SHOWN],
    ids=[f"{page.name} {entry.arguments}" for page, entry in SHOWN],
)
def test_an_answer_is_what_the_page_shows(outputs: dict[str, str], entry: Entry) -> None:
    """If a change is meant: `python -m ask_transcript` writes the pages."""
    assert outputs[entry.arguments] == entry.output


def test_thirty_questions_are_asked_in_order() -> None:
    page = PAGE.read_text()
    assert re.findall(r"^## (\d+)\. ", page, re.MULTILINE) == [str(number) for number in range(1, 31)]
    assert page.count("\n## ") == page.count("```console") == len(ENTRIES)
    assert len({entry.arguments for entry in ENTRIES}) == len(ENTRIES)


def test_the_readme_and_the_commands_show_what_is_printed_too() -> None:
    assert {"README.md", "ask.md", "commands.md"} <= {page.name for page, _ in SHOWN}
    shown = " ".join(entry.arguments.split()[0] for page, entry in SHOWN if page.name != "ask.md")
    assert {"offsets", "lag", "health", "restore", "history"} <= set(shown.split())


def test_tables_fit_the_terminal_they_were_printed_on() -> None:
    fitted = [entry for _, entry in SHOWN if not {"--output", "--wide"} & set(entry.arguments.split())]
    assert len(fitted) > len(ENTRIES) / 2
    lines = [line for entry in fitted for line in entry.output.splitlines()]
    assert [line for line in lines if len(line) > COLUMNS and not line.startswith("offsetlake: ")] == []


# --- the tables ---------------------------------------------------------------------------------------------


def groups(world: AskWorld, as_of: int | None = None) -> dict[str, Row]:
    return {row["group"]: row for row in world.tables.read(as_of=as_of).groups.to_pylist()}


def offsets(world: AskWorld, group: str, as_of: int | None = None) -> dict[tuple[str, int], int]:
    rows = world.tables.read([group], as_of=as_of).offsets.to_pylist()
    return {(row["topic"], row["partition"]): row["committed_offset"] for row in rows}


def test_the_groups_are_of_several_types_and_states(world: AskWorld) -> None:
    found = {
        name: (row["type"], row["state"], len(row["members"] or [])) for name, row in groups(world).items()
    }
    assert found == {
        "audit": ("classic", "Stable", 1),
        "billing": ("classic", "Stable", 2),
        LONG: ("classic", "Stable", 1),
        "fraud-scores": ("consumer", "Stable", 3),
        TOOL: ("classic", "Empty", 0),
        "parcel-labels": ("share", "Stable", 2),
        "shipping": ("classic", "Empty", 0),
    }
    assert {*found, "newsletter"} == set(GROUPS)
    assert list(GROUPS) == sorted(GROUPS)
    assert len(LONG) == 40


def test_every_group_at_work_has_committed_a_few_minutes_ago(world: AskWorld) -> None:
    for name, topics in ask_world._AT_WORK.items():
        rows = world.tables.read([name]).offsets.to_pylist()
        assert {row["topic"] for row in rows} == set(topics)
        assert {as_ms(row["commit_timestamp"]) for row in rows} == {LAST - 4 * MINUTE_MS}
        for row in rows:
            assert row["committed_offset"] == committed_offset(name, row["topic"], row["partition"], 0)
    assert len(offsets(world, "billing")) == TOPICS["orders"]


def test_billing_was_rewound_two_hours_ago(world: AskWorld) -> None:
    history = world.tables.ask(lambda at: at.history(["billing"], since=world.before(BEGINS)))
    rewinds = [row for row in history.to_pylist() if row["event"] == "rewind"]
    assert [(row["topic"], row["partition"]) for row in rewinds] == [("orders", 0), ("orders", 1)]
    assert {as_ms(row["commit_timestamp"]) for row in rewinds} == {world.before(REWINDS)}
    assert rewinds[0]["step"] == -24 * 1_200
    before, after = world.before(REWINDS) - MINUTE_MS, world.before(REWINDS) + MINUTE_MS
    assert offsets(world, "billing", before)["orders", 0] == committed_offset(
        "billing", "orders", 0, REWINDS + MINUTE_MS
    )
    day_before = offsets(world, "billing", before - DAY_MS)
    assert offsets(world, "billing", after)["orders", 0] == day_before["orders", 0]
    assert offsets(world, "billing", after)["orders", 2] > day_before["orders", 2]


def test_offsets_that_were_removed_are_known_with_their_causes(world: AskWorld) -> None:
    removals = world.tables.ask(lambda at: at.removals()).to_pylist()
    found = {
        (row["group"], row["topic"], row["partition"], row["cause"], as_ms(row["removed_at"]))
        for row in removals
    }
    assert found == {
        ("audit", "payments", 2, DELETED, world.before(DELETES)),
        ("newsletter", "clicks", 0, EXPIRED, world.before(EXPIRES)),
        ("newsletter", "clicks", 1, EXPIRED, world.before(EXPIRES)),
    }
    assert ("payments", 2) in offsets(world, "audit", world.before(DELETES) - MINUTE_MS)
    assert ("payments", 2) not in offsets(world, "audit")
    assert "newsletter" in groups(world, world.before(EXPIRES) - MINUTE_MS)


def test_shipping_is_the_next_to_expire(world: AskWorld) -> None:
    live = world.tables.read()
    assert live.progress.retention is not None
    rows = expiry(live.offsets, live.groups, live.progress.retention.retention_ms)
    due = {
        (row["group"], as_ms(row["expires_at"]) - LAST)
        for row in rows.filter(pc.is_valid(rows["expires_at"])).to_pylist()
    }
    assert due == {("shipping", 20 * HOUR_MS), (TOOL, 7 * DAY_MS - COPIES)}


def test_the_alerts_are_open_that_the_job_opens_within_two_minutes_of_their_causes(world: AskWorld) -> None:
    told = AlertTable(world.tables).read().open_episodes()
    episodes = {(one.episode.rule, one.episode.finding.group): one.episode for one in told}
    assert {key: one.finding.severity for key, one in episodes.items()} == {
        ("offset_expired", "newsletter"): "critical",
        ("offset_expiring", "shipping"): "warning",
        ("group_rewound", "billing"): "warning",
    }
    since = {rule: episode.opened_at for (rule, _), episode in episodes.items()}
    causes = {"offset_expired": EXPIRES, "offset_expiring": WARNS, "group_rewound": REWINDS}
    for rule, before in causes.items():
        assert 0 < since[rule] - world.before(before) < 2 * MINUTE_MS
    assert read_settings().alerts.warning_ms == WARNS - IDLE + RETENTION_MS


def test_a_record_is_in_quarantine(world: AskWorld) -> None:
    [row] = world.tables.read_quarantine().to_pylist()
    assert as_ms(row["source_timestamp"]) == world.before(BREAKS)
    assert (row["error_kind"], row["source_partition"], row["record_type"]) == ("malformed", 1, 1)
    assert row["reason"]
    assert world.tables.progress().totals.malformed == 1


def test_the_job_is_up_to_date_and_was_never_away(world: AskWorld) -> None:
    progress = world.tables.progress()
    assert progress.heartbeat == LAST
    assert set(Completeness(progress=progress, moment=LAST).states.values()) == {"current"}
    moments = range(world.before(BEGINS) + MINUTE_MS, LAST, 5 * HOUR_MS + MINUTE_MS)
    assert {world.tables.ask(lambda at: at.gap, as_of=moment) for moment in moments} == {None}
    assert world.tables.folded_up_to() == progress.sequence


def test_history_begins_two_days_ago(world: AskWorld) -> None:
    first = pc.min(world.tables.read_changes()["batch_time"]).as_py()
    assert as_ms(first) == world.before(BEGINS) + 1_000
    assert groups(world, world.before(BEGINS) + MINUTE_MS).keys() >= {"newsletter", "shipping"}
