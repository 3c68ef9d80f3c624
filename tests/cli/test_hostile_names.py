"""Names as bad as a broker lets them be: data in tables, SQL, alerts and on screens, and nothing else."""

import csv
import io
import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from alert_tables import DAY, RETENTION, Lake, alert_settings
from click.testing import CliRunner
from csv_texts import without_escapes
from hostile_names import NAMES
from http_receiver import running_receiver
from new_tables import new_tables
from table_batches import Batch, append, as_read, completed, group, offset, replay

from streaming.alerts.receivers import receivers
from streaming.alerts.rules import OFFSET_EXPIRING
from streaming.alerts.table import AlertTable
from streaming.cli import main as command
from streaming.cli.console import Console
from streaming.cli.layout.forms import OFFSETS
from streaming.cli.main import cli
from streaming.cli.render import TableStyle, print_rows
from streaming.common.escapes import printable
from streaming.maintenance.maintenance import KeepTimes, maintain
from streaming.model.errors import OffsetlakeError
from streaming.model.progress import PartitionProgress
from streaming.queries.lag import LagQueries
from streaming.queries.offsets import OffsetQueries
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

IDS = [f"{number}-{ascii(name)[:24]}" for number, name in enumerate(NAMES)]
TOPIC = 'orders\n"; \x1b[2J'


def filled(root: Path) -> tuple[Tables, Batch]:
    """Tables in which every name is a group and a topic; half of them folded."""
    tables = new_tables(root)
    first: Batch = {
        (name, name, 0): offset(committed_offset=n, metadata=name) for n, name in enumerate(NAMES)
    }
    second: Batch = {name: group(protocol=name, subscribed_topics=[name]) for name in NAMES}
    third: Batch = {(name, TOPIC, 1): offset(committed_offset=n + 100) for n, name in enumerate(NAMES)}
    append(tables, first | second, partitions={3: PartitionProgress(loaded=True)})
    tables.fold()
    append(tables, third)
    return tables, replay([first, second, third])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Batch]:
    return filled(tmp_path_factory.mktemp("hostile") / "tables")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=known, marks=[pytest.mark.more] if number % 3 else [])
        for number, (name, known) in enumerate(zip(NAMES, IDS, strict=True))
    ],
)
def test_each_name_is_a_group_of_its_own(lake: tuple[Tables, Batch], name: str) -> None:
    tables, live = lake
    expected = {key: row for key, row in live.items() if (key if isinstance(key, str) else key[0]) == name}
    assert as_read(tables, [name]) == completed(expected)
    queries = OffsetQueries(tables)
    listed = queries.list_offsets([name]).rows.to_pylist()
    assert {(row["group"], row["topic"]) for row in listed} == {(name, name), (name, TOPIC)}
    moved = LagQueries(tables).list_history(name, []).rows.to_pylist()
    assert {row["topic"] for row in moved} == {name, TOPIC}
    assert tables.ask(lambda at: len(at.removals([name]))) == 0


def test_folding_and_maintaining_keep_every_name_and_make_no_path_of_it(tmp_path: Path) -> None:
    tables, live = filled(tmp_path / "inside" / "tables")
    settings = read_settings(options={"tables.root": tables.root})
    tables.fold()
    maintain(tables, KeepTimes.of(settings), clock=lambda: 10_000)
    assert as_read(tables) == completed(live)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert [path.name for path in (tmp_path / "inside").iterdir()] == ["tables"]
    inside = {path.relative_to(tables.root).parts[1] for path in Path(tables.root).rglob("*.parquet")}
    assert all(part.startswith(("bucket=", "day=")) for part in inside)


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_what_a_terminal_gets_is_printable(lake: tuple[Tables, Batch], output: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    tables, _ = lake
    print_rows(OffsetQueries(tables).list_offsets().rows, output, OFFSETS, TableStyle(), terminal)
    lines = terminal.getvalue().split("\n")
    assert all(line.isprintable() for line in lines)
    if output == "table":
        assert all(any(printable(name) in line for line in lines) for name in NAMES)


@pytest.mark.parametrize(
    "arguments", [["offsets"], ["groups"], ["history", "--group", NAMES[7]]], ids=" ".join
)
def test_commands_print_names_as_data(lake: tuple[Tables, Batch], arguments: list[str]) -> None:
    tables, _ = lake
    for output in ("table", "json"):
        result = CliRunner().invoke(cli, [*arguments, "--table-root", tables.root, "--output", output])
        assert (result.exception, result.exit_code) == (None, 0)
        assert all(line.isprintable() for line in result.output.split("\n"))
    if arguments == ["offsets"]:
        assert {row["group"] for row in json.loads(result.stdout)} == set(NAMES)


def test_csv_for_a_program_gives_every_name_back(lake: tuple[Tables, Batch]) -> None:
    tables, _ = lake
    out = io.StringIO(newline="")
    print_rows(OffsetQueries(tables).list_offsets(None).rows, "csv", OFFSETS, TableStyle(), out)
    assert "\0" not in out.getvalue()
    rows = list(csv.DictReader(io.StringIO(out.getvalue(), newline="")))
    assert {without_escapes(row["group"]) for row in rows} == set(NAMES)


def test_sql_takes_names_as_values_alone(lake: tuple[Tables, Batch]) -> None:
    tables, _ = lake
    query = """SELECT count(*) AS n FROM live_offsets WHERE "group" = '''; DROP TABLE offsets; --'"""
    result = CliRunner().invoke(cli, ["sql", query, "--table-root", tables.root, "--output", "json"])
    assert json.loads(result.stdout) == [{"n": 2}]


def test_errors_and_sentences_are_printable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise OffsetlakeError("group \x1b[2J\x9b: first\nsecond line")

    monkeypatch.setattr(command, "cli", fail)
    with pytest.raises(SystemExit):
        command.main()
    assert capsys.readouterr().err == "offsetlake: group \\x1b[2J\\x9b: first\nsecond line\n"
    with Console(err=sys.stdout):
        logging.getLogger("streaming.x").info("group \x1b[2J\nforged")
    assert capsys.readouterr().out.endswith("Z group \\x1b[2J\\nforged\n")


# --- alerts ----------------------------------------------------------------------------------------------


CHAT = [
    "<!channel>",
    "<@U123> & <!here|x>",
    "@here",
    "a@channel b",
    "@Everyone",
    "@all",
    "<https://evil.example|billing>",
    "![billing](https://evil.example)",
]


@pytest.mark.more
def test_names_in_messages_call_nobody_in_a_chat(tmp_path: Path) -> None:
    """Slack takes `<!channel>` and `<https://...|...>` for markup, others @here, @all and Markdown."""
    lake = Lake(tmp_path)
    for number, name in enumerate([*CHAT, "ops@example.org", *(f"<{number}>" for number in range(21))]):
        lake.commit(name, (f"<!here>{number}", 0))
    lake.pass_time(RETENTION - DAY)
    lake.evaluate()
    told = [one for one in AlertTable(lake.tables).read().open_episodes() if one.episode.finding.group]
    with running_receiver() as hook:
        url = hook.url.removesuffix("/hook")
        settings = alert_settings(log="off", webhook__url=hook.url, alertmanager__url=url)
        webhook, alertmanager = receivers(settings, write=print, source={})
        for one in told:
            webhook.send([one], lake.now)
        webhook.send(told, lake.now)
        alertmanager.send(told, lake.now)
        *posted, many, alerts = hook.bodies
    assert {body["group"] for body in posted} >= {*CHAT, "ops@example.org"}
    assert {alert["labels"]["group"] for alert in alerts} >= {*CHAT}
    texts = [body["summary"] for body in (*posted, many)] + [
        alert["annotations"]["summary"] for alert in alerts
    ]
    assert len(texts) == 2 * len(told) + 1
    calls = re.compile(r"[<>&]|\]\(|@(here|channel|everyone|all)\b", re.IGNORECASE)
    assert [text for text in texts if calls.search(text)] == []
    assert all(
        "topic" in alert["annotations"] and not calls.search(alert["annotations"]["topic"])
        for alert in alerts
    )
    assert any(r'group "\u003c!channel\u003e":' in text for text in texts)
    assert any('"ops@example.org"' in text for text in texts)


def test_alerts_keep_names_apart_and_are_one_printable_line_each(tmp_path: Path) -> None:
    lines: list[str] = []
    names = [name for name in NAMES if name]
    lake = Lake(tmp_path)
    for name in names:
        lake.commit(name, (TOPIC, 0))
    lake.pass_time(RETENTION - DAY)
    lake.evaluate()
    state = AlertTable(lake.tables).read()
    [log] = receivers(alert_settings(), write=lines.append, source={})
    log.send([one for one in state.open_episodes() if one.episode.rule == OFFSET_EXPIRING.id], lake.now)
    assert all(line.isprintable() for line in lines)
    alerts = [json.loads(line)["alert"] for line in lines]
    assert sorted(alert["group"] for alert in alerts) == sorted(names)
    assert {alert["topic"] for alert in alerts} == {TOPIC}
    assert all(alert["summary"].isprintable() for alert in alerts)
    result = CliRunner().invoke(cli, ["alerts", "--table-root", lake.tables.root])
    assert result.exit_code == 0
    assert all(line.isprintable() for line in result.output.split("\n"))
