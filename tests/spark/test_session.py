"""What the Spark session is started with: alone on this machine, and on a cluster."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

from streaming.model.errors import MisuseError
from streaming.settings.contradictions import refuse_contradictions_of_job
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.spark.session import (
    INTERPRETED,
    MANY_RECORDS,
    Evaluation,
    forget_closed_sockets,
    python_of_workers,
    session_conf,
    start_session,
)

SIGNALLED = """
import signal, subprocess, threading
from streaming.spark.session import _own_signals
def start():
    with _own_signals():
        started.append(subprocess.Popen(["sleep", "60"], preexec_fn=lambda: None))  # as PySpark does
started = []
starting = threading.Thread(target=start) if IN_A_THREAD else None
starting.start() if starting else start()
starting.join() if starting else None
[jvm] = started
jvm.terminate()
try:
    print("ended by signal", -jvm.wait(2))
except subprocess.TimeoutExpired:
    print("running")
jvm.kill()
"""
"""Starts a process as that of the JVM, and sends it the signal that ends the job."""

SHARED = {"spark.master": "spark://spark:7077", "job.checkpoint": "s3a://lake/checkpoint"}


def conf_of(settings: Settings, *jars: str, directory: Path) -> dict[str, str]:
    for jar in jars:
        (directory / jar).touch()
    return session_conf(settings.spark, settings.job, directory)


def test_alone_on_a_machine_nobody_else_reaches_the_driver(tmp_path: Path) -> None:
    conf = conf_of(read_settings(), directory=tmp_path)
    assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_who_looks_at_the_ui_can_stop_nothing(tmp_path: Path) -> None:
    conf = conf_of(read_settings(options={"spark.conf": {"spark.ui.enabled": "true"}}), directory=tmp_path)
    assert (conf["spark.ui.enabled"], conf["spark.ui.killEnabled"]) == ("true", "false")


def test_the_memory_of_the_job_is_divided(tmp_path: Path) -> None:
    conf = conf_of(read_settings(options={"job.memory": "4GiB"}), directory=tmp_path)
    assert conf["spark.driver.memory"] == "2048m"
    assert conf["spark.memory.offHeap.size"] == str(512 * 2**20)
    assert conf_of(read_settings(), directory=tmp_path) == conf


def test_on_a_cluster_the_memory_is_that_of_the_driver(tmp_path: Path) -> None:
    conf = conf_of(read_settings(options={**SHARED, "job.memory": "4GiB"}), directory=tmp_path)
    assert conf["spark.driver.memory"] == "2048m"
    assert not any("offHeap" in name for name in conf)


def test_executors_elsewhere_reach_the_driver_and_get_the_connector(tmp_path: Path) -> None:
    conf = conf_of(read_settings(options=SHARED), "b.jar", "a.jar", directory=tmp_path)
    assert "spark.driver.host" not in conf
    assert "spark.driver.bindAddress" not in conf
    assert conf["spark.jars"] == f"{tmp_path / 'a.jar'},{tmp_path / 'b.jar'}"


def test_a_cluster_needs_no_class_of_a_jar_before_it_has_the_jars(tmp_path: Path) -> None:
    mounted = {**SHARED, "job.checkpoint": "file:///shared/checkpoint"}
    assert "spark.hadoop.fs.file.impl" not in conf_of(read_settings(options=mounted), directory=tmp_path)
    assert "spark.hadoop.fs.file.impl" in conf_of(read_settings(), directory=tmp_path)


OF_S3 = {"job.checkpoint": "s3a://lake/checkpoint"}
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
REGION = "spark.hadoop.fs.s3a.endpoint.region"


def test_a_checkpoint_on_s3_is_written_by_the_manager_that_reports_failures(tmp_path: Path) -> None:
    for options in (OF_S3, SHARED):
        conf = conf_of(read_settings(options=options), directory=tmp_path)
        assert conf[MANAGER].endswith(".FileContextBasedCheckpointFileManager")
        assert "DefaultCredentialsProvider" in conf["spark.hadoop.fs.s3a.aws.credentials.provider"]
        assert "spark.hadoop.fs.file.impl" not in conf
    for elsewhere in ("file:///shared/checkpoint", "hdfs://lake/checkpoint", "checkpoint"):
        conf = conf_of(read_settings(options={"job.checkpoint": elsewhere}), directory=tmp_path)
        assert not any("s3a" in name for name in conf)
        assert "FileContextBased" not in conf.get(MANAGER, "")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-1"),
        ({"AWS_REGION": "", "AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-2"),
        ({}, None),
    ],
)
def test_executors_get_address_and_region_of_the_drivers_environment_and_no_keys_by_settings(
    environment: dict[str, str], expected: str | None, tmp_path: Path
) -> None:
    settings = read_settings(options=OF_S3)
    address = {"AWS_ENDPOINT_URL": "https://s3.example.com"}
    conf = session_conf(settings.spark, settings.job, tmp_path, environment=environment | address)
    assert conf["spark.hadoop.fs.s3a.endpoint"] == "https://s3.example.com"
    secret = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}
    conf = session_conf(settings.spark, settings.job, tmp_path, environment=environment | secret)
    assert conf.get(REGION) == expected
    assert "s3cr3t" not in str(conf)


def test_settings_of_the_user_win_over_those_of_a_checkpoint_on_s3(tmp_path: Path) -> None:
    mine = {REGION: "eu-west-3", "spark.hadoop.fs.s3a.path.style.access": "false"}
    settings = read_settings(options={**OF_S3, "spark.conf": mine})
    conf = session_conf(settings.spark, settings.job, tmp_path, environment={"AWS_REGION": "eu-west-1"})
    assert {name: conf[name] for name in mine} == mine


def test_settings_of_the_user_win_and_their_jars_come_beside_the_connector(tmp_path: Path) -> None:
    mine = {"spark.driver.host": "driver", "spark.jars": "/opt/file-system.jar"}
    settings = read_settings(options={**SHARED, "spark.conf": mine})
    conf = conf_of(settings, "a.jar", directory=tmp_path)
    assert conf["spark.driver.host"] == "driver"
    assert conf["spark.jars"] == f"{tmp_path / 'a.jar'},/opt/file-system.jar"


def test_alone_on_a_machine_the_connector_is_on_the_class_path_before_jars_of_users(
    tmp_path: Path,
) -> None:
    mine = {"spark.driver.extraClassPath": "/opt/mine.jar", "spark.jars": "/opt/file-system.jar"}
    conf = conf_of(read_settings(options={"spark.conf": mine}), "b.jar", "a.jar", directory=tmp_path)
    assert conf["spark.driver.extraClassPath"] == f"{tmp_path / 'a.jar'}:{tmp_path / 'b.jar'}:/opt/mine.jar"
    assert conf["spark.jars"] == "/opt/file-system.jar"


def test_further_jars_are_copied_everywhere_and_all_jvms_get_the_properties(tmp_path: Path) -> None:
    connector, more = (tmp_path / name for name in ("connector", "more"))
    for folder, jar in ((connector, "a.jar"), (more, "b.jar")):
        folder.mkdir()
        (folder / jar).touch()

    def conf(options: dict[str, Any]) -> dict[str, str]:
        spark, job = read_settings(options=options).spark, read_settings(options=options).job
        return session_conf(spark, job, connector, more_jars=[more], properties={"aws.region": "eu-west-1"})

    alone, shared = conf({}), conf(SHARED)
    assert alone["spark.driver.extraClassPath"] == str(connector / "a.jar")
    assert alone["spark.jars"] == str(more / "b.jar")
    assert shared["spark.jars"] == f"{connector / 'a.jar'},{more / 'b.jar'}"
    for one in (alone, shared):
        assert "-Daws.region=eu-west-1" in one["spark.driver.extraJavaOptions"].split()
    assert shared["spark.executor.extraJavaOptions"].split() == [
        "-Daws.region=eu-west-1",
        "-XX:+UseParallelGC",
        "-XX:-UsePerfData",
        "-XX:Tier4InvocationThreshold=150000",
        "-XX:Tier4MinInvocationThreshold=18000",
        "-XX:Tier4CompileThreshold=450000",
        "-XX:Tier4BackEdgeThreshold=1200000",
    ]


def test_java_options_of_the_user_come_after_ours_and_their_collector_is_the_only_one(tmp_path: Path) -> None:
    def options(mine: str) -> str:
        settings = read_settings(options={"spark.conf": {"spark.driver.extraJavaOptions": mine}})
        conf = session_conf(settings.spark, settings.job, tmp_path, java_options=["-Dours=1"])
        return conf["spark.driver.extraJavaOptions"]

    assert options("-Dmine=1").endswith(" -Dours=1 -Dmine=1")
    assert options("-Dmine=1").count("GC") == 1
    assert "-XX:Tier4InvocationThreshold=" in options("-XX:+UseG1GC")
    assert "-Dlog4j2.configurationFile=" in options("-XX:+UseG1GC")
    assert options("-XX:+UseG1GC").count("GC") == 1


def test_workers_run_the_python_of_this_process_here_and_that_of_the_user_on_a_cluster() -> None:
    mine = {"spark.conf": {"spark.pyspark.python": "/opt/venv/bin/python"}}
    environment = {"PYSPARK_PYTHON": "/usr/bin/python3"}
    here, there = read_settings(), read_settings(options=SHARED)
    assert python_of_workers(here.spark, environment) == sys.executable
    assert python_of_workers(there.spark, {}) == sys.executable
    assert python_of_workers(there.spark, environment) == "/usr/bin/python3"
    assert (
        python_of_workers(read_settings(options=SHARED | mine).spark, environment) == "/opt/venv/bin/python"
    )


@pytest.mark.parametrize("master", ["spark://spark:7077", "k8s://https://k8s:6443", "yarn"])
def test_a_checkpoint_on_this_machine_alone_is_refused_for_a_cluster(master: str) -> None:
    shared = {"spark.master": master, "tables.root": "file:///shared/tables"}
    with pytest.raises(MisuseError, match=r"job\.checkpoint.*checkpoints/offsetlake.*file:///"):
        refuse_contradictions_of_job(read_settings(options=shared))
    refuse_contradictions_of_job(read_settings(options=shared | {"job.checkpoint": "file:///shared/state"}))


@pytest.mark.parametrize("master", ["spark://spark:7077", "k8s://https://k8s:6443", "yarn"])
def test_tables_on_this_machine_alone_are_refused_for_a_cluster(master: str) -> None:
    shared = {"spark.master": master, "job.checkpoint": "file:///shared/state", "tables.root": "lake"}
    with pytest.raises(MisuseError, match=r"tables\.root.* lake is a folder of this machine.*file:///"):
        refuse_contradictions_of_job(read_settings(options=shared))
    refuse_contradictions_of_job(read_settings(options=shared | {"spark.master": "local[2]"}))


def test_secrets_of_the_storage_are_not_sent_to_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "hidden-1")
    tables = {
        "tables.root": "s3://lake/offsets",
        "tables.storage_options": {"AWS_SECRET_ACCESS_KEY": "hidden-2"},
    }
    by_reference = {"tables.storage_options": {"AWS_SECRET_ACCESS_KEY": "${env:KEY}", "AWS_REGION": "eu"}}
    with pytest.raises(MisuseError, match="AWS_SECRET_ACCESS_KEY has a value that may be secret") as refused:
        refuse_contradictions_of_job(read_settings(options=SHARED | tables))
    assert "hidden" not in str(refused.value)
    refuse_contradictions_of_job(read_settings(options=SHARED | tables | by_reference))
    refuse_contradictions_of_job(read_settings(options=tables | {"spark.master": "local[2]"}))


def test_a_checkpoint_among_the_tables_is_seen_however_it_is_written() -> None:
    places = {"tables.root": "/lake", "job.checkpoint": "file:///lake/checkpoint"}
    with pytest.raises(MisuseError, match="overlap"):
        refuse_contradictions_of_job(read_settings(options=places))


@pytest.mark.spark
def test_workers_are_forked_from_a_process_that_has_imported_everything(spark: SparkSession) -> None:
    """Those for rows and those for UDFs are the same: of others as many again would start."""

    def worker(_number: int) -> tuple[int, int, bool]:
        threads = [*Path(f"/proc/{os.getppid()}/task").iterdir()]
        assert len(threads) == 1, "a fork takes one thread along, and the locks of all"
        return os.getppid(), gc.get_freeze_count(), "streaming.spark.shard_replay" in sys.modules

    def parent(numbers: pd.Series) -> pd.Series:
        return numbers * 0 + os.getppid()

    by_rows = spark.sparkContext.range(2, numSlices=2).map(worker).collect()
    by_udf = spark.range(2, numPartitions=2).select(pandas_udf(parent, "long")("id")).collect()
    assert {row[0] for row in by_udf} == {daemon for daemon, _, _ in by_rows}
    assert all(frozen > 10_000 and is_loaded for _, frozen, is_loaded in by_rows)


@pytest.mark.spark
def test_files_of_a_local_checkpoint_get_their_mode_and_checksum_without_other_processes(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path((tmp_path / "file").as_uri())
    files = path.getFileSystem(context._jsc.hadoopConfiguration())
    assert files.getClass().getName() == "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
    stream = files.create(path)
    stream.write(bytearray(b"x" * 1_000))
    stream.close()
    assert files.mkdirs(context._jvm.org.apache.hadoop.fs.Path((tmp_path / "1" / "2").as_uri()))
    assert {name.stat().st_mode & 0o777 for name in tmp_path.rglob("*") if name.is_file()} == {0o600}
    assert {name.stat().st_mode & 0o777 for name in tmp_path.rglob("*") if name.is_dir()} == {0o700}
    assert (tmp_path / ".file.crc").exists()
    assert [status.getLen() for status in files.listStatus(path.getParent()) if status.isFile()] == [1_000]


def test_files_of_a_local_job_are_its_users_and_the_groups_where_that_is_set(tmp_path: Path) -> None:
    def umask(**options: object) -> str | None:
        conf = conf_of(read_settings(options=options), directory=tmp_path)
        return conf.get("spark.hadoop.fs.permissions.umask-mode")

    assert umask() == "077"
    assert umask(**{"job.readable_by_group": "on"}) == "027"
    assert umask(**SHARED) is None


@pytest.mark.spark
def test_small_batches_are_interpreted_and_large_ones_generate_code(
    spark: SparkSession,
) -> None:
    session = spark.newSession()

    def chosen() -> set[str | None]:
        return {session.conf.get(name) for name in INTERPRETED}

    evaluation = Evaluation()
    seen = [chosen()]
    for records in (10, MANY_RECORDS, MANY_RECORDS - 1):
        evaluation.choose(session, records)
        seen.append(chosen())
    interpreted, generated = {"NO_CODEGEN", "false"}, {"FALLBACK", "true"}
    assert seen == [interpreted, interpreted, generated, interpreted]
    evaluation.choose(session, MANY_RECORDS)
    Evaluation().choose(session, 0)  # of the next query: that of the one before does not count
    assert chosen() == interpreted


@pytest.mark.spark
def test_how_the_user_has_expressions_evaluated_stays(spark: SparkSession, tmp_path: Path) -> None:
    mine = {"spark.sql.codegen.wholeStage": "false"}  # as we have it for small batches
    conf = conf_of(read_settings(options={"spark.conf": mine}), directory=tmp_path)
    assert {name: conf[name] for name in conf if "codegen" in name} == mine
    session = spark.newSession()
    for name in conf_of(read_settings(), directory=tmp_path).keys() - conf.keys():
        session.conf.unset(name)
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    Evaluation().choose(session, MANY_RECORDS)
    assert session.conf.get("spark.sql.codegen.wholeStage") == "false"


@pytest.mark.more
@pytest.mark.spark
def test_of_finished_work_spark_notes_only_the_last(spark: SparkSession) -> None:
    """It would be memory that grows by every batch, for a UI that is off."""
    for number in range(120):
        spark.range(number + 1).collect()
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    noted = {
        "jobs": context.statusStore().jobsList(None).size(),
        "queries": spark._jsparkSession.sharedState().statusStore().executionsCount(),
    }
    assert max(noted.values()) <= 60, noted  # cleaned up in the background, a tenth at a time
    assert min(noted.values()) > 0, noted  # else nothing was looked at


@pytest.mark.spark
def test_the_jvm_does_not_note_closed_sockets_for_ever(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    held = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    held.setAccessible(True)

    def noted() -> list[str]:
        return [str(file) for file in held.get(None)]

    other = str(tmp_path / "file")
    jvm.java.io.File(other).deleteOnExit()
    forget_closed_sockets(spark)
    before = noted()
    assert other in before
    for _ in range(3):
        assert spark.range(1).toArrow().num_rows == 1
    assert len(noted()) >= len(before) + 3, "closed sockets are noted, or nothing is looked at"
    forget_closed_sockets(spark)
    assert noted() == before


@pytest.mark.spark
def test_settings_may_refer_to_the_environment(spark: SparkSession) -> None:
    """As we tell people to, who would put a secret on the command line."""
    jvm: Any = spark.sparkContext._jvm
    of_hadoop = jvm.org.apache.hadoop.conf.Configuration(False)
    of_hadoop.set("fs.s3a.secret.key", "${env.PATH}")
    of_spark = jvm.org.apache.spark.SparkConf(False).set("spark.ssl.ui.keyStorePassword", "${env:PATH}")
    resolved = of_spark.getWithSubstitution("spark.ssl.ui.keyStorePassword").get()
    assert of_hadoop.get("fs.s3a.secret.key") == resolved == os.environ["PATH"]


def test_a_second_job_in_a_process_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        assert jvm.stdin is not None
        jvm.stdin.close()  # as `end_jvm` does
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
        settings = read_settings()
        with pytest.raises(MisuseError, match=r"expected a process in which no job has run before"):
            start_session(settings.spark, settings.job, tmp_path)


@pytest.mark.parametrize("in_a_thread", [False, True], ids=["job", "demo"])
def test_the_jvm_ignores_the_signal_that_ends_the_job(in_a_thread: bool) -> None:
    script = SIGNALLED.replace("IN_A_THREAD", str(in_a_thread))
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "running"
