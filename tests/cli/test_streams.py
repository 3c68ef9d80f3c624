"""Standard streams that are closed or of another encoding: what programs read is UTF-8 and nothing else."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from new_tables import new_tables
from table_batches import append, group, offset

from streaming.cli.main import COMMANDS
from streaming.model.progress import PartitionProgress, Retention

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "grüße-請求"
NEEDED: Final[Mapping[str, list[str]]] = {
    "history": ["--group", NAME],
    "sql": ['SELECT DISTINCT "group" FROM live_offsets'],
}
OF_BROKERS: Final = {"check"}
"""Commands about brokers, without tables."""

MORE: Final = {
    "restore": ["restore", f"{NAME}*", "--as-of", "now"],
    "names": ["groups", "--list"],
    "decode": ["decode", "{records}"],
    "metrics": ["metrics"],
    "openmetrics": ["metrics", "--openmetrics"],
    "settings": ["run", "--show-settings"],
}
WITHOUT_THE_NAME: Final = (
    "status",
    "alerts",
    "expiring",
    "removed",
    "maintain",
    "health",
    "metrics",
    "openmetrics",
)
"""There is nothing that these say of the group: of an old heartbeat, they have no rows."""

_END: Final = b"\x1e"
_PROGRAM: Final = """
import json, os, sys
from streaming.cli.main import main

for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as ended:
        os.write(1, b"\\x1e%d\\x1e" % (ended.code or 0))
"""


def machine_formats() -> dict[str, list[str]]:
    """Every command that prints for programs, in every format that it has for them."""
    found = dict(MORE)
    for command in [one for several in COMMANDS.values() for one in several]:
        for option in command.params:
            if option.name == "output" and command.name not in OF_BROKERS:
                for form in option.type.choices:  # type: ignore[attr-defined]
                    words = [str(command.name), *NEEDED.get(str(command.name), []), "--output", str(form)]
                    found[f"{command.name} {form}"] = words
    return found


KEPT = Retention(
    retention_ms=7 * 86_400_000, check_interval_ms=600_000, source="broker", read_at=0, known_since=0
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Commands about tables whose job is silent, of which each says so on standard error."""
    folder = tmp_path_factory.mktemp("streams")
    tables = new_tables(folder / "tables")
    read = {3: PartitionProgress(position=2, loaded=True)}
    batch = {(NAME, "t", 0): offset(metadata=NAME), NAME: group()}
    append(tables, batch, partitions=read, retention=KEPT)
    records = folder / "records.jsonl"
    key = b"\0\1" + b"".join(len(text).to_bytes(2) + text for text in (NAME.encode(), b"t")) + bytes(4)
    records.write_text(json.dumps({"key": key.hex(), "value": None}) + "\n")
    return {
        about: [word.replace("{records}", str(records)) for word in words]
        + ([] if about == "decode" else ["--table-root", tables.root])
        for about, words in machine_formats().items()
    }


def printed(
    asked: Mapping[str, list[str]], redirected: str = "", encoding: str = "utf-8"
) -> dict[str, tuple[str, int]]:
    """Run commands in one process; return what each prints on standard output (UTF-8), and its exit code."""
    words = list(asked.values())
    ran = subprocess.run(
        [*("sh", "-c", f'exec "$0" "$@" {redirected}', sys.executable, "-c"), _PROGRAM, json.dumps(words)],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=60,
        check=True,
    )
    assert b"Traceback" not in ran.stderr
    parts = ran.stdout.split(_END)[:-1]
    texts = [part.decode("utf-8") for part in parts[::2]]
    return dict(zip(asked, zip(texts, map(int, parts[1::2]), strict=True), strict=True))


@pytest.mark.parametrize(
    ("redirected", "encoding"),
    [("<&- 2>&-", "ascii"), pytest.param("", "latin-1", marks=pytest.mark.more)],
)
def test_programs_read_utf_8_and_nothing_else(
    asked: dict[str, list[str]], redirected: str, encoding: str
) -> None:
    for_programs = {about: words for about, words in asked.items() if not about.endswith(" table")}
    for about, (text, code) in printed(for_programs, redirected, encoding).items():
        assert code in (0, 1), about
        assert "offsetlake: " not in text, about
        if about.endswith((" json", " document")):
            json.loads(text)
        if about.split()[0] not in (*WITHOUT_THE_NAME, "settings"):
            assert NAME in text, about


@pytest.mark.parametrize("encoding", ["latin-1"])
def test_people_see_escapes_where_their_encoding_lacks_a_character(
    asked: dict[str, list[str]], encoding: str
) -> None:
    tables = {about: words for about, words in asked.items() if about.endswith(" table")}
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([*tables.values(), ["--help"], ["lag", "--help"]])],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=60,
        check=True,
    )
    assert b"Traceback" not in ran.stderr
    shown = NAME.encode(encoding, "backslashreplace")
    texts = dict(zip(tables, ran.stdout.split(_END)[::2], strict=False))
    for about in ("offsets table", "groups table", "sql table", "lag table"):
        assert shown in texts[about], about


def test_nothing_is_read_from_a_closed_standard_input(asked: dict[str, list[str]]) -> None:
    assert printed({"decode": ["decode"]}, "<&-") == {"decode": ("", 0)}


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_lead_nowhere_for_libraries_and_children_too(closed: str) -> None:
    program = (
        "import os, subprocess; from streaming.cli.output import open_closed_streams; open_closed_streams();"
        "file = os.open('/dev/zero', 0); assert file > 2, file; os.fstat(0); os.fstat(2); "
        "subprocess.run(['sh', '-c', 'echo x >&1; echo x >&2'], check=True, close_fds=False)"
    )
    line = f'exec "$0" -c "{program}" {closed}'
    assert subprocess.run(["sh", "-c", line, sys.executable], cwd=ROOT, check=False).returncode == 0
