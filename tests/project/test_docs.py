"""What the documentation says exists, exists: columns, commands, settings, files, messages."""

import ast
import pydoc
import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pytest
from command_columns import COLUMNS
from test_packages import OWNERS, PACKAGES, SETTINGS

from decoders.messages import APIS, Api
from streaming.alerts.rules import RULES
from streaming.cli.layout.forms import Form, head
from streaming.cli.main import cli
from streaming.model.schemas import ALERTS, CHANGES, DELIVERY, GROUPS, LOG_ENDS, MEMBER, OFFSETS, QUARANTINE

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
OPTIONS = {
    name: {option for one in command.params for option in one.opts} for name, command in cli.commands.items()
}


def section_of(document: str, name: str) -> str:
    found = re.search(rf"^## {name}:.*?(?=^## |\Z)", document, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {name}"
    return found[0]


@pytest.mark.parametrize(
    ("table", "schema"),
    [
        ("offsets", OFFSETS),
        ("groups", GROUPS),
        ("changes", CHANGES),
        ("quarantine", QUARANTINE),
        ("alerts", ALERTS),
        ("log_ends", LOG_ENDS),
    ],
)
def test_every_column_of_a_table_is_documented_and_nothing_else(table: str, schema: pa.Schema) -> None:
    section = section_of((ROOT / "docs" / "tables.md").read_text(), table)
    rows = re.findall(r"^\| ([a-z_, ]+) \|", section, re.MULTILINE)
    documented = {name for row in rows if row != "column" for name in row.split(", ")}
    assert documented == set(schema.names)


def test_the_fields_of_a_member_are_documented() -> None:
    section = section_of((ROOT / "docs" / "tables.md").read_text(), "groups")
    assert all(field.name in section for field in MEMBER)


def test_every_command_is_documented_and_nothing_else() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    assert set(re.findall(r"^\| `offsetlake (\w+)`", page, re.MULTILINE)) == set(cli.commands)


def test_the_columns_of_every_command_are_documented_as_they_are_shown() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    rows = re.findall(r"^\| `([a-z -]+)` \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    documented = {
        command: [[] if cell == "-" else cell.split(", ") for cell in cells] for command, *cells in rows
    }

    def heads(names: Iterable[str], form: Form) -> list[str]:
        return ["#" * (name in form.counted) + head(name) for name in names]

    assert documented == {
        command: [
            heads(sorted(form.always + form.kept, key=schema.names.index), form),
            heads(form.room, form),
            [*map(head, form.counted + form.wide)],
        ]
        for command, (schema, form) in COLUMNS.items()
    }


def test_heads_and_keys_are_one_mapping() -> None:
    names = {name for schema, _ in COLUMNS.values() for name in schema.names}
    assert {name for name in names if head(name) != name.upper().replace("_", "-")} == {
        "committed_offset",
        "lag_seconds",
        "partition_count",
    }
    assert len(set(map(head, names))) == len(names)
    page = (ROOT / "docs" / "commands.md").read_text()
    assert (
        "CURRENT-OFFSET is `committed_offset`, LAG-TIME `lag_seconds`, #PARTITIONS `partition_count`" in page
    )
    assert all(f"`{name}`" in page for _, form in COLUMNS.values() for name in form.unseen)


def versions_of(versions: range) -> str:
    return f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else str(versions[0])


def test_every_api_is_documented_as_it_is_declared() -> None:
    page = (ROOT / "docs" / "decoding.md").read_text()
    documented = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert documented == [
        (str(api.key), f"{api.name} | {versions_of(api.versions)} | {flexible_versions(api)}")
        for api in sorted(APIS.values(), key=lambda api: api.name)
    ]


def flexible_versions(api: Api) -> str:
    flexible = [version for version in api.versions if api.is_flexible(version)]
    return versions_of(range(flexible[0], flexible[-1] + 1)) if flexible else "none"


def test_the_fields_of_a_delivery_are_documented() -> None:
    section = section_of((ROOT / "docs" / "tables.md").read_text(), "alerts")
    assert all(field.name in section for field in DELIVERY)


def test_every_alert_rule_is_documented_and_nothing_else() -> None:
    documented = re.findall(r"^### (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert documented == [rule.id for rule in RULES]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them on GitHub."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*PAGES, *(ROOT / "docs" / "decisions").glob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", document.read_text()):
            page = document.parent / target if target else document
            assert page.exists(), f"{document.name}: {target}"
            assert not anchor or anchor in anchors(page), f"{document.name}: {target}#{anchor}"


def test_the_index_has_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert [page.name for page in PAGES[1:] if f"]({page.name})" not in index] == ["README.md"]


# --- what pages mention ----------------------------------------------------------------------------------


def mentions(page: Path) -> Iterator[str]:
    """Yield what a page has as code: within lines, and the commands of its console examples."""
    text = page.read_text()
    yield from re.findall(r"^\$ (.*)$", text, re.MULTILINE)
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def words_of(mention: str) -> list[str]:
    """The words of a command up to a pipe, redirection or comment; none of text that is not a command."""
    try:
        words = shlex.split(mention, comments=True)
    except ValueError:  # half a quote
        return []
    return list(takewhile(lambda word: word[0:1] not in ("|", ">"), words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_mentioned_exist(page: Path) -> None:
    every_option = set().union(*OPTIONS.values())
    for mention in mentions(page):
        match words_of(mention):
            case ["offsetlake", "..." | "--help", *_] | ["offsetlake"]:
                continue
            case ["offsetlake", command, *words]:
                assert command in cli.commands, mention
            case [command, *words] if command in cli.commands:  # as in `run --once`
                pass
            case [option, *_] as words if option.startswith("--"):
                command = ""
            case _:
                continue
        given = {word.rstrip(":,") for word in words if word.startswith("--")}
        assert given <= {*OPTIONS.get(command, every_option), "--help"}, mention


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_that_are_mentioned_exist(page: Path) -> None:
    sections = {setting.partition(".")[0] for setting in SETTINGS}
    for mention in mentions(page):
        if found := re.fullmatch(r"\[+([a-z][a-z_.]+)\]+(?: ([a-z_]+).*)?", mention):  # [tables] history
            name = ".".join(part for part in found.groups() if part)
            assert name in {*SETTINGS, *sections}, mention
        found = re.fullmatch(r"(([a-z]+)(?:\.[A-Za-z_]+)+)(?: = .*)?", mention)  # tables.history
        if found and found[2] in sections - {"spark"}:  # Spark's own settings begin with it, too
            assert found[1] in (chart_values() if page.name == "kubernetes.md" else SETTINGS), mention


def chart_values() -> set[str]:
    """Return the names of the values of the chart, with those of their blocks: `job.settings`."""
    names, blocks = set[str](), list[str]()
    for line in (ROOT / "conf" / "deploy" / "chart" / "values.yaml").read_text().splitlines():
        if found := re.match(r"((?:  )*)(\w+):", line):
            blocks = [*blocks[: len(found[1]) // 2], found[2]]
            names.add(".".join(blocks))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_targets_that_are_mentioned_exist(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for mention in mentions(page):
        if re.fullmatch(r"(streaming|decoders|tests|docs|conf|\.ci)/[\w./-]*", mention):
            assert (ROOT / mention).exists(), mention
        if target := re.match(r"make ([a-z0-9-]+)", mention):
            assert f".PHONY: {target[1]}\n" in makefile, mention


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_python_that_are_mentioned_exist(page: Path) -> None:
    for mention in mentions(page):
        if re.fullmatch(r"(streaming|decoders)(\.\w+)+", mention):
            assert pydoc.locate(mention) is not None, mention


# --- the page of the architecture ------------------------------------------------------------------------


def test_the_import_table_of_the_page_is_that_of_the_tests() -> None:
    rows = [row.strip("| ").split(" | ") for row in re.findall(r"^\| .*$", ARCHITECTURE, re.MULTILINE)[2:]]
    documented = {
        room: tuple(set() if cell == "-" else set(cell.split(", ")) for cell in cells)
        for room, *cells in rows
    }
    assert documented == {
        room: (set(below.split()), {package for package, rooms in OWNERS.items() if room in rooms.split()})
        for room, below in PACKAGES.items()
    }


def test_the_folder_list_of_the_page_is_that_of_the_rooms() -> None:
    assert re.findall(r"^(?:streaming/)?([\w/]+)/ +\w.*$", ARCHITECTURE, re.MULTILINE)[
        : len(PACKAGES)
    ] == list(PACKAGES)


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (\S+)", makefile, re.MULTILINE))
    explained = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    assert phony == explained


PLACEHOLDERS = re.compile(r"\.\.\.|\b(?:N|M|HOST|FOLDER|TABLE|RECEIVER|\d+)\b")
"""What stands in a quoted message of the documentation for what differs from time to time."""


def texts_of_code() -> str:
    """All literal text of the code; an expression within is a character that no document has."""
    texts = []
    for module in (ROOT / "streaming").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def is_said(message: str, texts: str) -> bool:
    """Tell whether the code has the message, whole or in two pieces that it puts together."""
    words = message.split(" ")
    pieces = [(" ".join(words[:count]), " ".join(words[count:])) for count in range(len(words))]
    return any(first.rstrip(":") in texts and second in texts for first, second in pieces)


def test_the_messages_that_are_explained_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    of_clients = r"^## Refused by brokers$.*?(?=^## )"
    ours = re.sub(of_clients, "", page, flags=re.MULTILINE | re.DOTALL)
    tables = re.findall(r"^\| message.*\n\|[- |]+\n((?:\|.*\n)+)", ours, re.MULTILINE)
    rows = [row.split(" | ")[0] for table in tables for row in table.splitlines()]
    quoted = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    fragments = [part.strip(" ,.:") for message in quoted for part in PLACEHOLDERS.split(message)]
    assert len(tables) == 8
    texts = texts_of_code()
    assert [fragment for fragment in fragments if not is_said(fragment, texts)] == []
