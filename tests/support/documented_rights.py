"""The rights that docs/security.md lists for the user of the job, read from its kafka-acls commands."""

import re
import shlex
from pathlib import Path

from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType  # type: ignore[attr-defined]
from secured_broker import Right

ROOT = Path(__file__).parents[2]


def listed_rights() -> list[Right]:
    """Read the rights from the kafka-acls commands of docs/security.md."""
    page = (ROOT / "docs" / "security.md").read_text()
    commands = re.findall(r"^\$ kafka-acls (.*--add .*)$", page, re.MULTILINE)
    assert commands
    return [_right(shlex.split(command)) for command in commands]


def without(kind: ResourceType, operation: AclOperation) -> list[Right]:
    """Return the listed rights but this operation on resources of this kind."""
    left = [right for right in listed_rights() if (right[0], right[3]) != (kind, operation)]
    assert len(left) < len(listed_rights())
    return left


def _right(words: list[str]) -> Right:
    options = {name: value for name, value in zip(words, [*words[1:], ""], strict=True) if name[:2] == "--"}
    pattern = ResourcePatternType[options.get("--resource-pattern-type", "literal").upper()]
    operation = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", options["--operation"]).upper()
    for option, kind in (("--topic", ResourceType.TOPIC), ("--group", ResourceType.GROUP)):
        if option in options:
            return kind, options[option], pattern, AclOperation[operation]
    assert "--cluster" in options
    return ResourceType.BROKER, "kafka-cluster", pattern, AclOperation[operation]
