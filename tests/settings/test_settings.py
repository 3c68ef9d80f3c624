"""Settings: defaults, a user's file over them, options last; mistakes are named, secrets are not."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.common.conf_dir import conf_dir
from streaming.common.times import parse_duration_ms
from streaming.lag.samples import MAX_SAMPLE_AGE_MS
from streaming.model.errors import MisuseError
from streaming.settings.clusters import settings_by_cluster, settings_of_cluster, with_brokers
from streaming.settings.contradictions import (
    LONGEST_HEARTBEAT_MS,
    LONGEST_SAMPLING_MS,
    refuse_contradictions_of_job,
)
from streaming.settings.kinds import Duration, kinds_of, shown_size
from streaming.settings.model import LEAST_MEMORY_BYTES, Settings
from streaming.settings.reading import _flatten, read_settings
from streaming.settings.shown import describe, shown_duration
from streaming.tables.progress_rows import GAP_MS, OBSERVED_EVERY_MS

DURATIONS = {name: kind for name, kind in kinds_of(Settings).items() if isinstance(kind, Duration)}


@pytest.fixture
def settings_file(tmp_path: Path) -> Any:
    """A function that writes a settings file and returns its path."""

    def write(text: str) -> Path:
        file = tmp_path / "mine.toml"
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_defaults_need_no_file() -> None:
    settings = read_settings()
    assert settings.source.topic == "__consumer_offsets"
    assert settings.source.client == {}
    assert settings.job.trigger_ms == 5_000


def test_settings_are_those_that_have_a_default() -> None:
    defaults = tomllib.loads((conf_dir() / "offsetlake.toml").read_text(encoding="utf-8"))
    assert _flatten(defaults).keys() == kinds_of(Settings).keys()


@pytest.mark.parametrize(
    ("checkpoint", "log"),
    [
        (None, "checkpoints/spark.log"),
        ("checkpoints/offsetlake", "checkpoints/spark.log"),
        ("/data/job 1/", "/data/spark.log"),
        ("mine", "spark.log"),
        ("file:///data/job", "/data/spark.log"),
        ("s3a://bucket/job", "checkpoints/spark.log"),
        ("hdfs://name/job", "checkpoints/spark.log"),
    ],
)
def test_spark_s_log_stands_beside_the_checkpoint_that_is_given(
    settings_file: Any, checkpoint: str | None, log: str
) -> None:
    assert read_settings(None, {"job.checkpoint": checkpoint}).spark.log_file == log
    environment = {"OFFSETLAKE_JOB_CHECKPOINT": checkpoint or ""}
    assert read_settings(None, {}, environment).spark.log_file == log
    file = settings_file('[spark]\nlog_file = "checkpoints/own.log"\n')
    assert read_settings(file, {"job.checkpoint": checkpoint}).spark.log_file == "checkpoints/own.log"
    file.write_text("" if checkpoint is None else f'[job]\ncheckpoint = "{checkpoint}"\n')
    assert read_settings(file).spark.log_file == log
    assert read_settings(file, {"spark.log_file": "/own"}).spark.log_file == "/own"


def test_spark_s_log_is_never_within_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings(None, {"job.checkpoint": "."}).spark.log_file == str(tmp_path.parent / "spark.log")
    assert read_settings(None, {"job.checkpoint": "/"}).spark.log_file == read_settings().spark.log_file


def test_file_wins_over_defaults_and_options_over_the_file(settings_file: Any) -> None:
    file = settings_file('[source]\ntopic = "copy"\nbootstrap_servers = "kafka:9092"\n[job]\ntrigger = "1m"')
    settings = read_settings(file, {"source.topic": "other", "job.trigger": None})
    assert settings.source.topic == "other"
    assert settings.source.bootstrap_servers == "kafka:9092"
    assert settings.job.trigger_ms == 60_000
    assert settings.tables == read_settings().tables


@pytest.mark.parametrize(
    "text",
    [
        '[source.client]\n"security.protocol" = "SSL"',
        '[source.client]\nsecurity.protocol = "SSL"',
        '[source.client.security]\nprotocol = "SSL"',
        '[source]\nclient = { "security.protocol" = "SSL" }',
        'source.client."security.protocol" = "SSL"',
        '"source.client" = { security.protocol = "SSL" }',
    ],
)
def test_free_tables_take_dotted_and_quoted_names_alike(settings_file: Any, text: str) -> None:
    assert read_settings(settings_file(text)).source.client == {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("value", "passed_on"), [("true", "true"), ("false", "false"), ("12", "12"), ("0.5", "0.5"), ('""', "")]
)
def test_values_of_free_tables_are_spelled_as_java_does(
    settings_file: Any, value: str, passed_on: str
) -> None:
    settings = read_settings(settings_file(f"[spark.conf]\nname = {value}"))
    assert settings.spark.conf == {"name": passed_on}


SHOP = '[[serve.clusters]]\nname = "shop"\ntable_root = "x"\n'
BANK = '[[serve.clusters]]\nname = "bank"\ntable_root = "s3://bank/x"\n'

MISTAKES = {
    "unknown name": (
        "[tables]\n[source]\ntopics = 1",
        ", line 3: unknown setting 'source.topics'. Did you mean source.topic?",
    ),
    "name of another section": ('[job]\nroot = "x"', "unknown setting 'job.root'. Did you mean tables.root?"),
    "name like none": (
        "[spark]\nxyz = 1",
        "'spark.xyz'. Settings of [spark]: master, log_file",
    ),
    "name with the name of another section": (
        '[spark]\ndriver_memory = "2g"',
        ", line 2: unknown setting 'spark.driver_memory'. Did you mean job.memory?",
    ),
    "size in Spark's words": (
        'job.memory = "4g"',
        'expects a whole number and its unit, such as "4GiB" or "2560MiB", or "auto", found \'4g\'',
    ),
    "number for a size": ("job.memory = 4", "'job.memory' expects text in quotes, found 4"),
    "too little memory": (
        '[job]\nmemory = "1GiB"',
        f", line 2: setting 'job.memory' expects at least {shown_size(LEAST_MEMORY_BYTES)}, found '1GiB'",
    ),
    "other text for a number": (
        'source.max_records_per_batch = "many"',
        "'source.max_records_per_batch' expects a whole number, or \"auto\", found 'many'",
    ),
    "name without a section": (
        "x = 1",
        ", line 1: unknown setting 'x'. Expected it in one of the sections alerts",
    ),
    "unknown table": ("[sauce]\nx = 1", ", line 1: unknown section [sauce]. Did you mean [source]?"),
    "unknown empty table": (
        "[job]\n# trigger\n[sparc]",
        ", line 3: unknown section [sparc]. Did you mean [spark]?",
    ),
    "unknown table of a table": (
        "[alerts.webhok.headers]\nx = 1",
        "unknown section [alerts.webhok]. Did you mean [alerts.webhook]",
    ),
    "text for a table": ('source = "x"', "'source' is a section, found a value. Write [source]"),
    "table for text": ("[tables.root]\nx = 1", "setting 'tables.root' expects text in quotes, found a table"),
    "text for a free table": ('source.client = "x"', "'source.client' expects a table, found something else"),
    "no topic's name": (
        'source.topic = "a b"',
        "'source.topic' expects 1 to 249 letters of A-Z and a-z, digits, '.', '_' and '-', found 'a b'",
    ),
    "number for text": ("source.topic = 1", "'source.topic' expects text in quotes, found 1"),
    "text for a number": ('tables.fold_rows = "1"', "'tables.fold_rows' expects a whole number, found '1'"),
    "fraction for a number": ("tables.fold_rows = 1.5", "expects a whole number, found 1.5"),
    "boolean for a number": ("tables.fold_rows = true", "expects a whole number, found True"),
    "number for a duration": ("job.trigger = 5", "'job.trigger' expects text in quotes, found 5"),
    "zero": ("tables.fold_rows = 0", "expects a number above 0, found 0"),
    "empty text": ('tables.root = ""', "'tables.root' expects text that is not empty, found ''"),
    "list in a free table": (
        "source.client.x = [1]",
        "'source.client' expects texts, numbers (up to 64 bits), true or false",
    ),
    "bad duration": (
        '\n[tables]\n# a week\nhistory = "7 days"',
        "mine.toml, line 4: tables.history: expected a duration such as 500ms, 10s, 5m, 24h or 7d, found",
    ),
    "no brokers": ('source.bootstrap_servers = " , "', "expects host:port, or several separated by commas"),
    "brokers without a port": ('source.bootstrap_servers = "kafka"', "expects host:port, or several"),
    "mistaken setting of clients": (
        '[source]\ntopic = "t"\n[source.client]\n"securty.protocol" = "SSL"',
        "found 'securty.protocol', which it would ignore. Did you mean security.protocol?",
    ),
    "unknown name in a list": (
        '[[alerts.groups]]\npatern = "x"',
        ", line 2: unknown setting 'alerts.groups[1].patern'. Did you mean alerts.groups[1].pattern?",
    ),
    "wrong type in a list": (
        '[[alerts.groups]]\npattern = "a"\n[[alerts.groups]]\npattern = 1',
        ", line 4: setting 'alerts.groups[2].pattern' expects text in quotes, found 1",
    ),
    "wrong word in a list": (
        '[[alerts.groups]]\npattern = "a"\ntreat = "ignore"',
        "'alerts.groups[1].treat' expects one of alert, summarize, exclude, found 'ignore'",
    ),
    "missing name in a list": (
        '[[alerts.groups]]\ntreat = "exclude"',
        ", line 1: setting 'alerts.groups[1]' expects a pattern, found none",
    ),
    "bad duration in a list": (
        '[[alerts.groups]]\npattern = "a"\nwarning = "soon"',
        ", line 3: alerts.groups[1].warning: expected a duration",
    ),
    "empty duration in a list": (
        '[[alerts.groups]]\npattern = "a"\nwarning = ""',
        "'alerts.groups[1].warning' expects text that is not empty",
    ),
    "table for a list": (
        "[alerts.groups]\nx = 1",
        "setting 'alerts.groups' expects a list of tables, found a table. Write [[alerts.groups]].",
    ),
    "list of texts for a list of tables": (
        'alerts.groups = ["a"]',
        "'alerts.groups[1]' expects a table, found 'a'",
    ),
    "critical before warning": (
        '[alerts]\nwarning = "1h"',
        "expected critical to be at most as long as warning",
    ),
    "critical of a pattern before its warning": (
        '[[alerts.groups]]\npattern = "a"\ncritical = "48h"',
        "alerts.groups with pattern 'a': expected critical",
    ),
    "heartbeats too far apart": (
        'job.heartbeat_every = "5m"',
        "job.heartbeat_every is 300 s, and the time between two heartbeats counts as not observed",
    ),
    "always behind": (
        'job.trigger = "10m"',
        "alerts.behind_warning is 300 s, but the job reports its progress only every 610 s",
    ),
    "critically behind before it is behind": (
        'alerts.behind_critical = "1m"',
        "alerts.behind_critical (60 s) is shorter than alerts.behind_warning (300 s)",
    ),
    "evaluated too rarely": (
        '[[alerts.groups]]\npattern = "a"\ncritical = "20s"',
        "alerts.evaluate_every is 30 s, longer than a threshold alerts.critical of 20 s",
    ),
    "sampled too often": (
        'log_ends.every = "99ms"',
        "log_ends.every is 0.099 s, expected at least 0.1 s",
    ),
    "sampled too rarely": (
        'log_ends.every = "3m"',
        "log_ends.every is 180 s, and lag is not known where log ends were not sampled for 300 s",
    ),
    "a window without samples": (
        'health.window = "90s"\nlog_ends.every = "2m"',
        "health.window is 90 s, but log ends are sampled every 120 s",
    ),
    "a cluster with a blank in its name": (
        '[[serve.clusters]]\nname = "my shop"\ntable_root = "x"',
        ", line 2: setting 'serve.clusters[1].name' expects 1 to 249 letters of A-Z and a-z, digits, "
        "'.', '_' and '-', found 'my shop'",
    ),
    "a cluster with an empty name": (
        '[[serve.clusters]]\nname = ""\ntable_root = "x"',
        "'serve.clusters[1].name' expects 1 to 249 letters",
    ),
    "a cluster with a long name": (
        f'[[serve.clusters]]\nname = "{"x" * 250}"\ntable_root = "x"',
        "'serve.clusters[1].name' expects 1 to 249 letters",
    ),
    "a cluster without a name": (
        '[[serve.clusters]]\ntable_root = "x"',
        ", line 1: setting 'serve.clusters[1]' expects a name, found none",
    ),
    "a cluster without tables": (
        '[[serve.clusters]]\nname = "shop"',
        "setting 'serve.clusters[1]' expects a table_root, found none",
    ),
    "two clusters of one name": (
        f"{SHOP}{SHOP}",
        "conflicting settings: two of [[serve.clusters]] have the name 'shop'. Give each another name.",
    ),
    "two clusters with one root": (
        f'{SHOP}[[serve.clusters]]\nname = "bank"\ntable_root = "./x/"',
        "the clusters 'shop' and 'bank' of [[serve.clusters]] have the same table_root (./x/)",
    ),
    "a listener of one of several clusters": (
        f'{SHOP}{BANK}[[serve.kafka]]\nlisten = "127.0.0.1:1"',
        "serve.kafka at 127.0.0.1:1 has no cluster, but there are several: a listener answers for one of "
        "them. Set its cluster (shop, bank).",
    ),
    "a listener of an unknown cluster": (
        f'{SHOP}{BANK}[[serve.kafka]]\nlisten = "127.0.0.1:1"\ncluster = "shpo"',
        "serve.kafka at 127.0.0.1:1: cluster: expected a cluster of [[serve.clusters]] (shop, bank), found "
        "'shpo'. Did you mean shop?",
    ),
    "a listener of a cluster, without any": (
        '[[serve.kafka]]\nlisten = "127.0.0.1:1"\ncluster = "shop"',
        "serve.kafka at 127.0.0.1:1: cluster: expected [[serve.clusters]] in the settings, found none.",
    ),
    "a label that names the cluster, too": (
        f'{SHOP}[metrics.labels]\ncluster = "x"',
        "metrics.labels has 'cluster', but with [[serve.clusters]] every series has this label already",
    ),
    "no address": ('alerts.webhook.url = "hooks.example"', "expects an address such as https://"),
    "no TOML": ("job.trigger", "expected TOML, found an error"),
    "too many commits": (
        f"health.min_commits = {'9' * 30}",
        f"line 1: setting 'health.min_commits' expects a number of at most 2147483647, found {'9' * 30}.",
    ),
    "too large a lag": ("health.min_lag = 2_147_483_648", "at most 2147483647, found 2147483648."),
    "more digits than Python reads": (
        f"health.min_lag = {'9' * 5_000}",
        "mine.toml: expected TOML, found a number of too many digits.",
    ),
    "more digits than Python writes": (
        f"health.min_lag = 0x{'f' * 5_000}",
        "found a number of too many digits.",
    ),
    "more digits than Python writes, in a table": (
        f'[source.client]\n"fetch.min.bytes" = 0x{"f" * 5_000}',
        "line 1: setting 'source.client' expects texts, numbers (up to 64 bits), true or false in its table, "
        "found something else as fetch.min.bytes.",
    ),
    "lists within too many others": (
        f"health.min_lag = {'[' * 3_000}{']' * 3_000}",
        "mine.toml: expected TOML, found lists or tables within too many others.",
    ),
    "tables within too many others": (
        f"{'a.' * 3_000}a = 1",
        "found lists or tables within too many others.",
    ),
    "NUL in a file": ('serve.http.token_file = "a\\u0000b"', "expects a path without NUL, found 'a\\x00b'."),
    "NUL in a folder": ('job.checkpoint = "a\\u0000b"', "'job.checkpoint' expects a path without NUL"),
    "NUL in a folder of a cluster": (
        '[[serve.clusters]]\nname = "shop"\ntable_root = "\\u0000"',
        "'serve.clusters[1].table_root' expects a path without NUL",
    ),
    "NUL in the file of a reference": (
        'source.client.x = "${file:/a\\u0000b:c}"',
        "cannot be read (embedded null byte).",
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistake_in_a_file_is_named(settings_file: Any, text: str, message: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read_settings(settings_file(text))
    assert message in str(raised.value)
    assert raised.value.exit_code == 2


MISTAKES_OF_JOB = {
    "checkpoint among the tables": (
        'tables.root = "lake"\njob.checkpoint = "lake/changes"',
        "tables.root (lake) and job.checkpoint (lake/changes) overlap",
    ),
    "tables in the checkpoint": (
        'tables.root = "s3://lake/offsets/tables/"\njob.checkpoint = "s3://lake/offsets"',
        "overlap",
    ),
    "the checkpoint among the tables on S3, which it names otherwise": (
        'tables.root = "s3://lake/offsets"\njob.checkpoint = "s3a://lake/offsets/checkpoint"',
        "overlap",
    ),
    "the same folder with a scheme": (
        'tables.root = "file:///srv/lake"\njob.checkpoint = "/srv//lake/checkpoint"',
        "overlap",
    ),
    "the same place in S3 with more slashes": (
        'tables.root = "s3://lake//offsets/"\njob.checkpoint = "s3a://lake/offsets///checkpoint"',
        "overlap",
    ),
    "a checkpoint on S3 in the words of the tables": (
        'tables.root = "s3://lake/offsets"\njob.checkpoint = "s3://lake/checkpoint"',
        "Set s3a://lake/checkpoint (tables have s3://)",
    ),
    "the same place twice": ('tables.root = "x"\njob.checkpoint = "./x"', "overlap"),
    "memory in Spark's words": ('spark.conf."spark.driver.memory" = "3g"', "Remove it and set job.memory"),
    "memory outside the heap in Spark's words": (
        'spark.conf."spark.memory.offHeap.size" = "1g"',
        "Remove it and set job.memory",
    ),
    "state partitions in Spark's words": (
        'spark.conf."spark.sql.shuffle.partitions" = 4',
        "Remove it and set job.state_partitions",
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES_OF_JOB.values(), ids=MISTAKES_OF_JOB.keys())
def test_contradiction_of_the_job_is_refused_by_the_job_alone(
    settings_file: Any, text: str, message: str
) -> None:
    settings = read_settings(settings_file(text))
    with pytest.raises(MisuseError, match=r"^conflicting settings") as raised:
        refuse_contradictions_of_job(settings)
    assert message in str(raised.value)


def test_heartbeats_that_are_allowed_leave_no_gap() -> None:
    assert LONGEST_HEARTBEAT_MS + OBSERVED_EVERY_MS <= GAP_MS


def test_a_round_of_samples_that_fails_leaves_lag_known() -> None:
    assert 2 * LONGEST_SAMPLING_MS == MAX_SAMPLE_AGE_MS  # settings may not import lag
    read_settings(options={"log_ends.every": "2m"})
    read_settings(options={"log_ends.every": "100ms"})


def test_places_beside_each_other_are_no_contradiction() -> None:
    places = {"tables.root": "s3://lake/offsets", "job.checkpoint": "s3a://lake/offsets-state"}
    refuse_contradictions_of_job(read_settings(options=places))


def test_a_file_system_of_the_user_for_s3_is_used_for_the_checkpoint() -> None:
    own = {"spark.hadoop.fs.s3.impl": "com.example.S3"}
    refuse_contradictions_of_job(read_settings(options={"job.checkpoint": "s3://lake/c", "spark.conf": own}))


def test_mistake_names_the_place_it_was_made_in(settings_file: Any) -> None:
    with pytest.raises(MisuseError, match=r"mine\.toml, line 1: unknown setting"):
        read_settings(settings_file("x = 1"))
    with pytest.raises(MisuseError, match=r"the command line: setting 'tables\.root'"):
        read_settings(options={"tables.root": ""})


@pytest.mark.parametrize("content", [None, b"\xff"], ids=["missing", "not UTF-8"])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "mine.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(MisuseError, match=r"settings file .*mine\.toml: "):
        read_settings(file)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        (" 0 s ", 0),
    ],
)
def test_durations_have_a_unit(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text, name="--for") == milliseconds


@pytest.mark.parametrize("name", sorted(DURATIONS.keys() - {"job.trigger"}))
def test_duration_of_zero_is_refused(name: str) -> None:
    with pytest.raises(
        MisuseError, match=f"the command line: {name}: expected a duration above 0, found '0s'"
    ):
        read_settings(options={name: "0s"})


@pytest.mark.parametrize("name", sorted(DURATIONS))
def test_duration_beyond_a_century_is_refused(name: str) -> None:
    expected = f"the command line: {name}: expected a duration of at most 36500d, found '36501d'"
    with pytest.raises(MisuseError, match=expected):
        read_settings(options={name: "36501d"})


def test_durations_may_be_left_to_the_brokers() -> None:
    assert read_settings().expiry.retention_ms is None
    given = read_settings(options={"expiry.retention": "7d", "expiry.check_interval": "10m"}).expiry
    assert (given.retention_ms, given.check_interval_ms) == (604_800_000, 600_000)
    with pytest.raises(MisuseError, match=r"expiry\.retention: expected a duration"):
        read_settings(options={"expiry.retention": "never"})


def test_trigger_alone_may_be_zero() -> None:
    assert read_settings(options={"job.trigger": "0s"}).job.trigger_ms == 0


@pytest.mark.parametrize("text", ["", "5", "s", "1.5s", "-1s", "5S", "1m30s", "5 sec"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(MisuseError, match="--for: expected a duration"):
        parse_duration_ms(text, name="--for")


# --- clusters --------------------------------------------------------------------------------------------


def test_each_cluster_has_its_own_root_and_else_the_same_settings(settings_file: Any) -> None:
    settings = read_settings(settings_file(f'{SHOP}{BANK}[tables]\nroot = "y"\ncomplete_within = "5m"'))
    own = settings_by_cluster(settings)
    assert {name: one.tables.root for name, one in own.items()} == {"shop": "x", "bank": "s3://bank/x"}
    brokers = {name: one.source.bootstrap_servers for name, one in own.items()}
    assert brokers == {"shop": "BROKERS-OF-shop:PORT", "bank": "BROKERS-OF-bank:PORT"}
    usual = [with_brokers(one, "localhost:9092") for one in own.values()]
    assert all(replace(one, tables=settings.tables) == settings for one in usual)
    assert all(replace(one.tables, root="y") == settings.tables for one in own.values())
    assert settings_of_cluster(settings, "bank", where="--cluster") == own["bank"]
    assert 'serve.clusters = [{ name = "shop", table_root = "x" }, ' in "\n".join(describe(settings))


def test_without_clusters_there_is_one_that_has_no_name() -> None:
    settings = read_settings()
    assert settings_by_cluster(settings) == {"": settings}


def test_one_cluster_that_is_named_needs_no_name_at_its_listeners(settings_file: Any) -> None:
    settings = read_settings(settings_file(f'{SHOP}[[serve.kafka]]\nlisten = "127.0.0.1:1"'))
    assert settings.serve.kafka[0].cluster == ""


# --- lists of tables -------------------------------------------------------------------------------------


def test_entries_of_a_file_come_before_the_defaults(settings_file: Any) -> None:
    file = settings_file(
        '[[alerts.groups]]\npattern = "test-*"\ntreat = "exclude"\n'
        '[[alerts.groups]]\npattern = ""\nwarning = "72h"\ncritical = "12h"'
    )
    first, second, *defaults = read_settings(file).alerts.groups
    assert (first.pattern, first.treat, first.warning_ms) == ("test-*", "exclude", None)
    assert (second.pattern, second.treat) == ("", "alert")
    assert (second.warning_ms, second.critical_ms) == (259_200_000, 43_200_000)
    assert tuple(defaults) == read_settings().alerts.groups
    assert [entry.pattern for entry in defaults] == ["console-consumer-*"]


# --- describe --------------------------------------------------------------------------------------------

SECRETS = {
    "source.client": [
        "sasl.jaas.config",
        "ssl.truststore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "sasl.oauthbearer.client.credentials.client.secret",
    ],
    "tables.storage_options": [
        "AWS_SECRET_ACCESS_KEY",
        "aws_session_token",
        "azure_storage_account_key",
        "google_service_account_key",
        "sas_token",
    ],
}


@pytest.mark.parametrize(
    ("table", "name"), [(table, name) for table, names in SECRETS.items() for name in names]
)
def test_secrets_are_hidden(table: str, name: str) -> None:
    assert described(read_settings(options={table: {name: "s3cr3t"}}))[table] == {name: "(hidden)"}


def test_secret_inside_a_value_is_hidden() -> None:
    options = {"user_agent": "-Dx=1 -Djavax.net.ssl.trustStorePassword=s3cr3t"}
    assert "s3cr3t" not in "\n".join(describe(read_settings(options={"tables.storage_options": options})))


@pytest.mark.parametrize("receiver", ["webhook", "alertmanager"])
def test_addresses_and_headers_of_receivers_are_hidden(receiver: str) -> None:
    settings = read_settings(
        options={
            f"alerts.{receiver}.url": "https://user:s3cr3t@hooks.example:8443/T0/s3cr3t?x=s3cr3t",
            f"alerts.{receiver}.headers": {"X-Any": "s3cr3t"},
        }
    )
    values = described(settings)
    assert values[f"alerts.{receiver}.url"] == "https://hooks.example:8443/..."
    assert values[f"alerts.{receiver}.headers"] == {"X-Any": "(hidden)"}
    assert "s3cr3t" not in "\n".join(describe(settings))


def test_address_that_is_refused_is_not_shown() -> None:
    with pytest.raises(MisuseError) as raised:
        read_settings(options={"alerts.webhook.url": "htps://user:s3cr3t@hooks.example"})
    assert "alerts.webhook.url" in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def test_everything_else_is_shown() -> None:
    client = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "/keys/trust.jks",
        "client.id": "key",
    }
    values = described(read_settings(options={"source.client": client, "source.topic": "secret-passwords"}))
    assert values["source.client"] == client
    assert values["source.topic"] == "secret-passwords"


def test_settings_are_shown_in_the_words_in_which_they_are_set() -> None:
    defaults = _flatten(tomllib.loads((conf_dir() / "offsetlake.toml").read_text(encoding="utf-8")))
    assert described(read_settings()) == {name: value for name, value in defaults.items() if value != {}}
    assert 'job.heartbeat_every = "10s"' in describe(read_settings())


@pytest.mark.parametrize("text", ["0s", "1ms", "1500ms", "90s", "1m", "1h", "24h", "25h", "2d", "36500d"])
def test_durations_are_shown_as_they_are_set(text: str) -> None:
    assert shown_duration(parse_duration_ms(text, name="it")) == text


def test_what_is_shown_is_a_settings_file(settings_file: Any) -> None:
    options = {
        "spark.conf": {"spark.app.name": 'a "quoted"\nvalue', "spark.hadoop.x": "${env.X}"},
        "alerts.groups": [{"pattern": "", "warning": "3d"}],
        "expiry.retention": "7d",
    }
    settings = read_settings(options=options)
    again = read_settings(settings_file("\n".join(describe(settings))))
    assert replace(again, alerts=settings.alerts, metrics=settings.metrics) == settings
    assert again.metrics.groups[: len(settings.metrics.groups)] == settings.metrics.groups
    assert again.alerts.groups[: len(settings.alerts.groups)] == settings.alerts.groups  # before the defaults


def described(settings: Settings) -> dict[str, Any]:
    return _flatten(tomllib.loads("\n".join(describe(settings))))
