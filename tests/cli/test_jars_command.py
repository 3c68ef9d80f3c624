"""The command `offsetlake jars`, with the jars of this machine's cache."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from streaming.cli.commands.jars import _SETS
from streaming.jvm.jars import JarSet, ensure_jars, listed_jars


def test_it_copies_sets_of_jars_and_says_where_to(offsetlake: Any, tmp_path: Path) -> None:
    ensure_jars("connector")
    count = len(listed_jars("connector"))
    ended = offsetlake("jars", "--to", str(tmp_path / "jars"), "--set", "connector")
    assert (ended.code, ended.err) == (0, "")
    assert re.fullmatch(rf"connector: {count} jars in {tmp_path}/jars/connector-\w+\n", ended.out)


def test_a_failure_has_exit_code_1(offsetlake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETLAKE_JARS", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    ended = offsetlake("jars")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("offsetlake: looking for Java: ")


def test_an_empty_folder_is_refused(offsetlake: Any) -> None:
    ended = offsetlake("jars", "--to", "", "--set", "connector")
    assert (ended.code, ended.out, "--to: expected a folder, found ''" in ended.err) == (2, "", True)


def test_its_sets_are_jar_sets() -> None:
    assert set(_SETS) <= set(get_args(JarSet))
