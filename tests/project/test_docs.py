"""What the documentation says exists, exists: columns, commands, settings, files, messages."""

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest

from streaming.alerts.rules import RULES
from streaming.cli.main import cli
from streaming.model.schemas import ALERTS, CHANGES, DELIVERY, GROUPS, MEMBER, OFFSETS, QUARANTINE

ROOT = Path(__file__).parents[2]


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


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    assert set(re.findall(r"^\| `offsetlake (\w+)`", readme, re.MULTILINE)) == set(cli.commands)


def test_the_fields_of_a_delivery_are_documented() -> None:
    section = section_of((ROOT / "docs" / "tables.md").read_text(), "alerts")
    assert all(field.name in section for field in DELIVERY)


def test_every_alert_rule_is_documented_and_nothing_else() -> None:
    documented = re.findall(r"^### (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert documented == [rule.id for rule in RULES]


def test_links_between_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (\S+)", makefile, re.MULTILINE))
    explained = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
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
    return any(first in texts and second in texts for first, second in pieces)


def test_the_messages_that_are_explained_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    ours = page.split("## Refused by brokers")[0]  # which are those of Kafka's clients
    tables = re.findall(r"^\| message.*\n\|[- |]+\n((?:\|.*\n)+)", ours, re.MULTILINE)
    rows = [row.split(" | ")[0] for table in tables for row in table.splitlines()]
    quoted = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    fragments = [part.strip(" ,.:") for message in quoted for part in PLACEHOLDERS.split(message)]
    assert len(tables) == 7
    texts = texts_of_code()
    assert [fragment for fragment in fragments if not is_said(fragment, texts)] == []
