"""Mistakes are told with their line: found in every spelling of TOML, or left out."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.settings.lines import line_of

FILE = """\
# settings
source.topic = "t"   # dotted
[tables]
  "root" = "x"

[ tables . storage_options ]
"a.b" = 1
text = '''
[job]
trigger = "5s"
'''
[job]
list = [
  1,  # comment
  2,
]
inline = { a = 1, b.c = 2 }
[[alerts.groups]]
pattern = "a"
[[alerts.groups]]
# another
pattern = "b"
critical = "1h"
"""
LINES = {
    "source": 2,
    "source.topic": 2,
    "tables": 3,
    "tables.root": 4,
    "tables.storage_options": 6,
    "tables.storage_options.a.b": 7,
    "tables.storage_options.text": 8,
    "job": 12,
    "job.trigger": None,
    "job.list": 13,
    "job.inline.b.c": 17,
    "alerts.groups[1]": 18,
    "alerts.groups[1].pattern": 19,
    "alerts.groups[2]": 20,
    "alerts.groups[2].pattern": 22,
    "alerts.groups[2].critical": 23,
    "alerts.groups[3]": None,
}


@pytest.mark.parametrize(("name", "line"), LINES.items())
def test_a_setting_is_found_in_every_spelling(name: str, line: int | None) -> None:
    assert line_of(name, FILE) == line
    assert line_of(name, FILE.replace("\n", "\r\n")) == line


def test_of_a_long_file_no_line_is_reported() -> None:
    assert line_of("x", "\n" * 400 + "x = 1") == 401
    assert line_of("x", "\n" * 600 + "x = 1") is None


@given(st.lists(st.sampled_from(FILE.splitlines()), max_size=12))
def test_a_line_that_is_reported_ends_what_does_not_hold_the_name(lines: list[str]) -> None:
    text = "\n".join(lines)
    line = line_of("source.topic", text)
    if line is not None:
        before = "\n".join(lines[: line - 1])
        assert "topic" not in tomllib.loads(before).get("source", {})
        assert "source.topic" in lines[line - 1]
