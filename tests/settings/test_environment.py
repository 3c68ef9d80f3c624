"""Settings by environment variables: over the file, under the command line; mistakes are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from streaming.model.errors import MisuseError
from streaming.settings.environment import variables_of, without_settings
from streaming.settings.kinds import kinds_of
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings

VARIABLES = variables_of(kinds_of(Settings))


def test_every_setting_has_a_variable_of_its_own() -> None:
    settings = [name for variable, name in VARIABLES.items() if variable != "OFFSETLAKE_TABLE_ROOT"]
    assert len(settings) == len(set(settings)) == len(VARIABLES) - 1
    assert VARIABLES["OFFSETLAKE_SOURCE_MAX_RECORDS_PER_BATCH"] == "source.max_records_per_batch"


def test_variables_are_laid_over_the_file_and_options_over_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[tables]\nroot = "of the file"\n[job]\ntrigger = "3s"\n')
    environment = {
        "OFFSETLAKE_TABLE_ROOT": "lagune/Ümläut",
        "OFFSETLAKE_JOB_TRIGGER": "7s",
        "OFFSETLAKE_JOB_STATE_PARTITIONS": "5",
        "OFFSETLAKE_JOB_CHECKPOINT": "",  # as none
        "OFFSETLAKE_SERVE_AS_OF_CLIENTS": "true",
        "OFFSETLAKE_JARS": "/jars",
        "HOME": "/root",
    }
    settings = read_settings(file, {"job.trigger": "9s"}, environment)
    assert (settings.tables.root, settings.job.trigger_ms) == ("lagune/Ümläut", 9_000)
    assert (settings.job.state_partitions, settings.job.checkpoint) == (5, "checkpoints/offsetlake")
    assert settings.serve.as_of_clients is True
    assert read_settings(file, {}, environment).job.trigger_ms == 7_000
    assert without_settings(environment) == {"OFFSETLAKE_JARS": "/jars", "HOME": "/root"}


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "OFFSETLAKE_TABLES_ROT",
            "x",
            "OFFSETLAKE_TABLES_ROT: expected the name of .* mean OFFSETLAKE_TABLES_ROOT",
        ),
        ("OFFSETLAKE_TABLES_ROT", "", "OFFSETLAKE_TABLES_ROT: expected the name of "),
        ("OFFSETLAKE_SOURCE_CLIENT", "{}", "Tables and lists of settings are for a settings file"),
        ("OFFSETLAKE_JOB_TRIGGER", "soon", "environment variable OFFSETLAKE_JOB_TRIGGER: .*found 'soon'"),
        ("OFFSETLAKE_JOB_STATE_PARTITIONS", "two", "variable OFFSETLAKE_JOB_STATE_PARTITIONS: .*found 'two'"),
        ("OFFSETLAKE_JOB_STATE_PARTITIONS", "0", "above 0"),
        ("OFFSETLAKE_HEALTH_MIN_LAG", "9" * 30, "expects a number of at most 2147483647, found 9{30}\\."),
        (
            "OFFSETLAKE_HEALTH_MIN_LAG",
            "9" * 5_000,
            "MIN_LAG: setting 'health.min_lag' expects a whole number",
        ),
        ("OFFSETLAKE_SERVE_AS_OF_CLIENTS", "yes", "expects true or false, found 'yes'"),
    ],
)
def test_mistakes_are_named(variable: str, value: str, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        read_settings(None, {}, {variable: value})


def test_two_variables_of_one_setting_that_differ_are_refused(offsetlake: Any, monkeypatch: Any) -> None:
    both = {"OFFSETLAKE_TABLES_ROOT": "one", "OFFSETLAKE_TABLE_ROOT": "other"}
    expected = (
        "environment variables OFFSETLAKE_TABLES_ROOT and OFFSETLAKE_TABLE_ROOT: expected one of them, or "
        "the same value; found two values. Both are tables.root: unset one."
    )
    for variable, value in both.items():
        monkeypatch.setenv(variable, value)
    assert offsetlake("status") == (2, "", f"offsetlake: {expected}\n")
    assert read_settings(None, {}, dict.fromkeys(both, "one")).tables.root == "one"
    assert read_settings(None, {}, {**both, "OFFSETLAKE_TABLES_ROOT": ""}).tables.root == "other"


def test_the_command_heeds_them(offsetlake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OFFSETLAKE_TABLE_ROOT", str(tmp_path))
    ended = offsetlake("status", "--output", "json")
    assert (ended.code, str(tmp_path / "changes") in ended.err) == (1, True)
    assert f"root = {json.dumps(str(tmp_path))}" in offsetlake("run", "--show-settings").out
    monkeypatch.setenv("OFFSETLAKE_TABEL_ROOT", "x")
    assert offsetlake("status").code == 2
