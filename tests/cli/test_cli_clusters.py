"""The option --cluster: the tables of a cluster that the settings name, for all commands that read tables."""

import json
from pathlib import Path
from typing import Any

import pytest
from metrics_read import by, read
from served_clusters import filled, settings_naming

from streaming.cli.main import COMMANDS

WITH_TABLES = {
    command.name: {parameter.name for parameter in command.params}
    for commands in COMMANDS.values()
    for command in commands
    if any(parameter.name == "table_root" for parameter in command.params)
}
ARGUMENTS = {"restore": ["g", "--as-of", "now"], "sql": ["SELECT * FROM live_offsets"], "health": ["g"]}
READING = sorted(str(name) for name in WITH_TABLES.keys() - {"run", "rebuild", "serve"})


@pytest.fixture
def config(tmp_path: Path) -> str:
    """A settings file that names two clusters, whose group `g` is at 7 and at 8."""
    roots = {"shop": tmp_path / "shop", "bank": tmp_path / "bank"}
    filled(roots["shop"], committed=7)
    filled(roots["bank"], committed=8)
    return str(settings_naming(roots, tmp_path / "settings.toml", '[expiry]\nretention = "7d"'))


def test_every_command_that_reads_tables_takes_a_cluster() -> None:
    assert {name for name, options in WITH_TABLES.items() if "cluster" not in options} == {"run", "rebuild"}
    assert "offsets" in READING


@pytest.mark.parametrize("command", READING)
def test_a_cluster_is_read_at_its_own_root(offsetlake: Any, config: str, command: str) -> None:
    named = ["--config", config, "--cluster", "bank"]
    ended = offsetlake(command, *ARGUMENTS.get(command, []), *named)
    assert ended.code == 0, ended.err
    root = Path(config).with_name("bank")
    root.rename(root.with_name("gone"))
    ended = offsetlake(command, *ARGUMENTS.get(command, []), *named)
    assert (ended.code, str(root) in ended.err) == (1, True), ended.err


@pytest.mark.parametrize(("cluster", "committed"), [("shop", 7), ("bank", 8)])
def test_offsets_are_those_of_the_cluster(
    offsetlake: Any, config: str, cluster: str, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFSETLAKE_TABLE_ROOT", "/nowhere")
    ended = offsetlake("offsets", "--config", config, "--cluster", cluster, "--output", "json")
    assert [row["committed_offset"] for row in json.loads(ended.out)] == [committed]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--cluster", "bnak"],
            "expected a cluster of [[serve.clusters]] (shop, bank), found 'bnak'. Did you mean bank?",
        ),
        (["--cluster", ""], "(shop, bank), found ''."),
        (
            ["--cluster", "bank", "--table-root", "x"],
            "--cluster and --table-root: expected one of them, found both.",
        ),
    ],
)
def test_mistakes_about_clusters_are_named(
    offsetlake: Any, config: str, arguments: list[str], message: str
) -> None:
    for command in ("offsets", "metrics"):
        ended = offsetlake(command, "--config", config, *arguments)
        assert (ended.code, ended.out, message in ended.err) == (2, "", True), ended.err


@pytest.mark.parametrize("command", [["offsets"], ["expiring"], ["alerts", "--evaluate"]])
def test_brokers_of_a_cluster_are_asked_only_if_they_are_given(
    offsetlake: Any, config: str, command: list[str], tmp_path: Path
) -> None:
    (file := tmp_path / "client.properties").write_text("security.protocol=SSL\n")
    ended = offsetlake(*command, "--config", config, "--cluster", "bank", "--command-config", str(file))
    said = "--command-config and --cluster: expected --bootstrap-server beside them, found none"
    assert (ended.code, ended.out, said in ended.err) == (2, "", True), ended.err


def test_a_cluster_without_settings_that_name_it_is_a_mistake(offsetlake: Any) -> None:
    ended = offsetlake("lag", "--cluster", "shop")
    assert (
        ended.code,
        "--cluster: expected [[serve.clusters]] in the settings, found none" in ended.err,
    ) == (2, True)


# --- metrics ---------------------------------------------------------------------------------------------


def positions(text: str) -> dict[Any, float]:
    return by(read(text.encode())["offsetlake_group_topic_position"], "cluster")


def test_metrics_of_all_clusters_are_printed_or_of_one(offsetlake: Any, config: str) -> None:
    assert positions(offsetlake("metrics", "--config", config).out) == {"shop": 7, "bank": 8}
    assert positions(offsetlake("metrics", "--config", config, "--cluster", "bank").out) == {"bank": 8}


def test_metrics_of_one_cluster_that_cannot_be_read_do_not_take_away_the_other(
    offsetlake: Any, config: str
) -> None:
    Path(config).with_name("shop").rename(Path(config).with_name("gone"))
    ended = offsetlake("metrics", "--config", config)
    assert (ended.code, positions(ended.out)) == (0, {"bank": 8})
    assert by(read(ended.out.encode())["offsetlake_tables_readable"], "cluster") == {"shop": 0, "bank": 1}
    assert "cluster shop: the in-memory snapshot of offsets and groups cannot be refreshed" in ended.err
    Path(config).with_name("bank").rename(Path(config).with_name("gone, too"))
    ended = offsetlake("metrics", "--config", config)
    assert (ended.code, ended.out) == (1, "")
    assert f"{Path(config).with_name('shop')} or {Path(config).with_name('bank')}" in ended.err


# --- serve -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--kafka", "127.0.0.1:0"],
            "--kafka: expected --cluster beside it, because the settings name several clusters (shop, bank)",
        ),
        (["--kafka", "127.0.0.1:0", "--cluster", "shpo"], "found 'shpo'. Did you mean shop?"),
        (["--cluster", "shop"], "--cluster: expected --kafka beside it, found none"),
        (
            ["--table-root", "x"],
            "--table-root: expected settings without [[serve.clusters]] beside it, found shop, bank",
        ),
    ],
)
def test_options_that_contradict_the_clusters_of_the_settings(
    offsetlake: Any, config: str, arguments: list[str], message: str
) -> None:
    ended = offsetlake("serve", "--config", config, "--http", "127.0.0.1:0", *arguments)
    assert (ended.code, message in ended.err) == (2, True), ended.err
