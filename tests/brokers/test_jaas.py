"""JAAS entries: what is written is read again."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streaming.brokers.jaas import JaasEntry, read_jaas, written_jaas
from streaming.model.errors import MisuseError

NAMES = st.from_regex(r"[A-Za-z][\w.-]{0,20}", fullmatch=True)


@given(st.dictionaries(NAMES, st.text(max_size=50)))
def test_an_entry_that_was_written_is_read_again(options: dict[str, str]) -> None:
    entry = JaasEntry("org.example.LoginModule", options)
    assert read_jaas(written_jaas(entry)) == entry


def test_an_entry_is_one_line_as_kafka_requires() -> None:
    written = written_jaas(JaasEntry("M", {"a": 'q"\\', "b": "x\r\ny;"}))
    assert written == 'M required a="q\\"\\\\" b="x\\r\\ny;";'


@pytest.mark.parametrize("value", ['"secret\n"', "'secret\r'", '"first\nsecret"'])
def test_a_line_end_within_quotes_is_refused_as_by_java_and_not_shown(value: str) -> None:
    with pytest.raises(MisuseError, match="a value in quotes has no line ends") as raised:
        read_jaas(f'M required username="u"\n password={value};')
    assert "secret" not in str(raised.value)
