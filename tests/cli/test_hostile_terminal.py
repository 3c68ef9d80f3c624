"""Names as bad as a broker lets them be, on a terminal: every command in every format shows them as text."""

import json
from collections.abc import Iterator
from typing import Final

import click
import pytest
from alert_tables import DAY, HOUR, RETENTION, Lake
from hostile_names import NAMES
from terminal import on_terminal

from streaming.cli.main import COMMANDS
from streaming.common.times import now_ms
from streaming.expiry.causes import EXPIRED

BAD: Final = [name for name in NAMES if not name.isprintable() and len(name) < 500]
QUERY: Final = 'SELECT "group", topic, metadata FROM live_offsets'
KNOWN: Final = [command for commands in COMMANDS.values() for command in commands]
NOT_ASKED: Final = {"check", "run", "rebuild", "demo", "serve", "maintain", "jars", "scram"}
"""They print no names, but sentences and lines of JSON, which `Console` and `json_text` make printable."""
NEEDED: Final = {"history": ["--all-groups"], "sql": [QUERY], "leftovers": ["--idle", "1m"]}
"""What some commands are not run without, or show nothing without."""


def with_every_output(command: click.Command) -> Iterator[list[str]]:
    """A command with each of its formats; none if it has no option for them."""
    name = str(command.name)
    for option in command.params:
        if "--output" in option.opts:
            assert isinstance(option.type, click.Choice)
            for output in option.type.choices:
                yield [name, *NEEDED.get(name, []), "--output", output]


ASKED: Final[list[list[str]]] = [
    *(words for command in KNOWN if command.name not in NOT_ASKED for words in with_every_output(command)),
    ["offsets", "--wide"],
    ["groups", "--members", "--verbose"],
    ["groups", "--list"],
    ["history", "--all-groups", "--since", "2h", "--every", "30m"],
    ["health", "--since", "2h"],
    ["restore", "--group", "*", "--as-of", "1m"],
    ["restore", "--group", "\x1b[2J\x1b]0;title\x07", "--as-of", "1m"],
    ["offsets", "--group", "\x1b]0;none\x07"],
    ["sql", 'SELECT 1 FROM "\x1b]0;none\x07"'],
    ["metrics"],
    ["decode", "FILE"],
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command shows, of tables in which each name is a group, a topic, a member and metadata."""
    directory = tmp_path_factory.mktemp("lake")
    lake = Lake(directory / "tables", start=now_ms() - HOUR)
    value = {"committed_offset": 7, "commit_timestamp": lake.now - RETENTION + DAY}
    value["expire_timestamp"] = lake.now + 3 * HOUR
    rows, removed = [], []
    for name in BAD:
        member = {"member_id": name, "group_instance_id": name, "client_id": name, "client_host": name}
        protocol = {"type": "classic", "protocol_type": name, "protocol": name}
        states = {name: ("Empty", []), f"{name}+": ("Stable", [member])}
        for group, (state, members) in states.items():
            described = {**protocol, "state": state, "members": members}
            committed = {**value, "metadata": name}
            rows += [
                lake._change("offset", group, (topic, 0), committed, lake.now) for topic in (name, "gone")
            ]
            rows.append(lake._change("group", group, (None, None), described, lake.now))
            gone = lake._change("offset", group, ("gone", 0), None, lake.now)
            removed.append(gone | {"cause": EXPIRED})
    lake._append(rows, 0)
    lake._append(removed, 0)
    lake.pass_time(HOUR)
    lake.sample({(name, 0): 10 for name in BAD})
    lake.evaluate()
    key = "\x1b[2J\u202e".encode()
    file = directory / "records"
    file.write_text(json.dumps({"key": f"0002{len(key):04x}{key.hex()}", "value": None}) + "\n\x1b[2J\n")
    asked = [[str(file) if word == "FILE" else word for word in words] for words in ASKED]
    rooted = [
        [*words, *([] if words[0] == "decode" else ["--table-root", lake.tables.root])] for words in asked
    ]
    shown = on_terminal(((120, words) for words in rooted), with_errors=True)
    return dict(zip(map(" ".join, ASKED), shown, strict=True))


def test_every_command_is_asked() -> None:
    """A command of another name fails here until it is asked; one with `--output` is asked of itself."""
    assert {words[0] for words in ASKED} | NOT_ASKED == {command.name for command in KNOWN}
    assert not {words[0] for words in ASKED} & NOT_ASKED


@pytest.mark.parametrize("command", [" ".join(words) for words in ASKED], ids=ascii)
def test_what_a_terminal_gets_is_printable(seen: dict[str, str], command: str) -> None:
    lines = seen[command].split("\n")
    assert [line[:300] for line in lines if not line.isprintable()] == []
    assert len(lines) > 1


def test_the_names_are_there(seen: dict[str, str]) -> None:
    """What is printable because it is empty shows nothing."""
    for words in ASKED:
        if words[0] != "status" and words[-1] != "FILE" and "none" not in words[-1]:
            assert r"\x1b" in (text := seen[" ".join(words)]) or r"\u001b" in text, words


def test_the_help_puts_nothing_on_the_terminal_beside_a_file() -> None:
    texts = [command.help or "" for command in KNOWN]
    assert [text for text in texts if "| tee" in text] == []
    assert any("> billing.csv" in text for text in texts)
