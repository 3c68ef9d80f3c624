"""The command `offsetlake jars`, with the jars of this machine's cache."""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from command_process import COMMAND, started

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


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        ("jars", signal.SIGINT, 130),
        ("jars", signal.SIGTERM, 143),
        ("run", signal.SIGINT, 0),
        ("run", signal.SIGTERM, 0),
        ("demo", signal.SIGTERM, 0),
    ],
)
def test_a_download_does_not_outlive_the_command(
    tmp_path: Path, command: str, number: signal.Signals, code: int
) -> None:
    java, pid = tmp_path / "java" / "bin" / "java", tmp_path / "pid"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.15"\' >&2; exit; fi\n'
        f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\n"
    )
    java.chmod(0o755)
    env = {**os.environ, "JAVA_HOME": str(java.parents[1]), "OFFSETLAKE_JARS": str(tmp_path / "cache")}
    with started([*COMMAND, command], output=tmp_path / "out", cwd=tmp_path, env=env) as process:
        wait_until(pid.exists)
        download = int(pid.read_text())
        try:
            process.send_signal(number)
            assert process.wait(30) == code, (tmp_path / "out").read_text()
            wait_until(lambda: not Path(f"/proc/{download}").exists(), 5)
        finally:
            with suppress(ProcessLookupError):
                os.kill(download, signal.SIGKILL)
    (log,) = (tmp_path / "cache").iterdir()
    assert log.name == f"ivy-{'broker' if command == 'demo' else 'connector'}.log"


def wait_until(is_so: Callable[[], bool], limit_s: float = 60) -> None:
    limit = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.05)
