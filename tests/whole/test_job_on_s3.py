"""The whole job with its tables on S3: killed, refused, kept waiting and left without answers under live
traffic, with readers beside it. In the end the tables equal the broker's answers, and their history is whole.

Only `make test-s3` runs this (it sets S3): ten kills take ten minutes. The checkpoint is a local folder; that
of the last tests is on S3 too.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import kafka_clients as kafka
import pytest
from answering_server import answering
from command_process import COMMAND
from conftest import BrokerFactory
from deltalake import DeltaTable
from group_actors import QUICK, assert_tables_say, start_group_actors, without_forgotten
from history_checks import Reader, check_history, check_quarantine, table_offsets
from http_program import running_program
from job_process import ROOT, JobProcess
from kafka_versions import KafkaVersion
from live_traffic import OFFSETS_PARTITIONS, LiveTraffic, wait_for_markers
from object_store import ObjectStore
from pyarrow.fs import SubTreeFileSystem
from store_proxy import Fault, StoreProxy, start_store_proxy
from test_kills import kill, plan

from streaming.demo.local_broker import LocalBroker, free_ports
from streaming.maintenance.lease import LEASE_TRANSACTION
from streaming.tables.tables import SCHEMAS, Tables

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.skipif("S3" not in os.environ, reason="`make test-s3` runs it"),
]

KILLS = int(os.environ.get("S3_KILLS", "10"))
SEED = int(os.environ.get("S3_SEED", "1"))

TROUBLES = (
    Fault(kind="PUT|POST", chance=0.02, status=503, code="SlowDown"),
    Fault(kind="PUT", path=r".*/_delta_log/.*", chance=0.05, is_cut=True, arrives=True),
    Fault(chance=0.01, status=500, code="InternalError"),
    Fault(chance=0.01, is_cut=True),
    Fault(chance=0.02, delay_s=0.5),
)
"""What a store does on a bad day; delta-rs repeats most of these requests."""


@pytest.fixture
def proxy(object_store: ObjectStore, tmp_path: Path) -> Iterator[StoreProxy]:
    with start_store_proxy(tmp_path / "proxy", object_store.endpoint) as running:
        yield running
        print(running.suffered())


@pytest.fixture
def environment(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What commands that do not go through the proxy need, which this process has too."""
    options = object_store.options()
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def job_on(
    store: ObjectStore, proxy: StoreProxy, directory: Path, bootstrap: str, **environment: str
) -> JobProcess:
    return JobProcess(
        directory,
        bootstrap,
        table_root=store.new_root(),
        storage_options=store.options(),
        environment=store.options(endpoint=proxy.endpoint) | environment,
    )


@pytest.mark.timeout(600 + 180 * KILLS)
def test_killed_again_and_again_on_a_bad_day_the_tables_equal_the_brokers_answers(
    make_broker: BrokerFactory,
    kafka_version: KafkaVersion,
    java_jars: Path,
    object_store: ObjectStore,
    proxy: StoreProxy,
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    bootstrap = make_broker(offsets_partitions=OFFSETS_PARTITIONS, overrides=QUICK).bootstrap_servers
    job = job_on(object_store, proxy, tmp_path, bootstrap)
    steps = list(plan(KILLS, chance))
    with start_group_actors(java_jars, bootstrap) as actors:
        traffic = LiveTraffic(bootstrap, actors, kafka_version, seed=SEED)
        try:
            with Reader(job.tables) as reader, traffic:
                proxy.set_faults(*TROUBLES)
                for number, where in enumerate(steps, start=1):
                    began = time.monotonic()
                    kill(job, where, chance)
                    print(f"kill {number}: {where}, after {time.monotonic() - began:.1f} s", flush=True)
                    assert (reader.failure, traffic.failure) == (None, None), f"kill {number} ({where})"
                traffic.finish()
                wait_for_markers(bootstrap)
                proxy.set_faults()
                job.start("run", "--once")
                assert job.wait() == 0, job.output
        finally:
            job.kill()
        assert reader.failure is None
        assert reader.reads > KILLS
        offsets = kafka.broker_offsets(bootstrap)
        assert table_offsets(job.tables) == offsets
        assert_tables_say(job.tables, without_forgotten(actors.groups(), offsets))
    check_history(job.tables)
    check_quarantine(job.tables, traffic.unreadable)
    asked_for = sum(where.endswith("change-over") for where in steps)
    assert job.tables.progress().generation <= asked_for, "a rebuild that nobody asked for"
    assert job.tables.aside().existing() == []
    assert "-secret" not in "".join(file.read_text() for file in tmp_path.glob("out-*.txt"))
    check_commands(job, environment)
    check_other_engines(job.tables, object_store)


def check_commands(job: JobProcess, environment: dict[str, str]) -> None:
    """Every command that reads or maintains answers; after a rebuild the tables are the same."""
    before = table_offsets(job.tables)
    place = ["--table-root", job.tables.root]
    moment = int(time.time() * 1_000)
    for command in (
        ["offsets"],
        ["offsets", "--as-of", "-1s"],
        ["groups"],
        ["lag"],
        ["health"],
        ["status"],
        ["history", "--since", "-1h"],
        ["expiring"],
        ["removed"],
        ["sql", "SELECT count(*) AS n FROM offsets"],
    ):
        rows = asked([*command, *place, "--output", "json"], environment)
        print(f"{command}: {len(rows)} rows")
        if command == ["offsets"]:  # also partitions that members own without an offset
            assert sum(row["committed_offset"] is not None for row in rows) == len(before)
    check_maintenance(job, environment)
    check_serve(job)
    job.start("rebuild")
    assert job.wait() == 0, job.output
    assert table_offsets(job.tables) == before
    check_history(job.tables)
    assert moment < job.tables.progress().heartbeat


def check_maintenance(job: JobProcess, environment: dict[str, str]) -> None:
    """Maintenance succeeds, unless a job that was killed in the middle of it still has the lease."""
    lease_ends = job.tables.delta("quarantine").transaction_version(LEASE_TRANSACTION) or 0
    is_taken = lease_ends > time.time() * 1_000
    ran = ran_command(["maintain", "--table-root", job.tables.root], environment)
    assert ran.returncode == (1 if is_taken else 0), ran.stderr
    assert is_taken == ("or was killed while it was. Its lease expires at" in ran.stderr)
    print(f"maintain: {'refused until the lease of a killed job ends' if is_taken else 'done'}")


def ran_command(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streaming.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def asked(arguments: list[str], environment: dict[str, str]) -> list[dict[str, Any]]:
    ran = ran_command(arguments, environment)
    assert ran.returncode == 0, (arguments, ran.stderr)
    rows = json.loads(ran.stdout)
    return rows if isinstance(rows, list) else [rows]


def check_serve(job: JobProcess) -> None:
    """`offsetlake serve` reads the tables, and says what they say."""
    [port] = free_ports(1)
    command = [*COMMAND, "serve", "--http", f"127.0.0.1:{port}", "--table-root", job.tables.root]
    url = f"http://127.0.0.1:{port}"
    with running_program(command, f"{url}/healthz", log=job.directory / "serve.log", cwd=ROOT):
        with urllib.request.urlopen(f"{url}/groups.json", timeout=60) as answer:
            told = json.load(answer)
        groups = {row["group"] for row in job.tables.read().groups.to_pylist()}
        assert groups <= {row["group"] for row in told["rows"]}


def check_other_engines(tables: Tables, store: ObjectStore) -> None:
    """DuckDB and pandas read the folded tables as docs/reading.md shows."""
    tables.fold()
    expected = len(tables.read().offsets)
    offsets = DeltaTable(f"{tables.root}/offsets", storage_options=store.options())
    assert len(offsets.to_pandas()) == expected
    files = SubTreeFileSystem(f"{tables.root.removeprefix('s3://')}/offsets", store.file_system())
    rows = offsets.to_pyarrow_dataset(filesystem=files)
    assert duckdb.sql("SELECT count(*) AS n FROM rows").fetchall() == [(expected,)]
    assert len(rows.to_table()) == expected


@pytest.mark.timeout(600)
def test_credentials_that_expire_are_renewed_in_a_file_while_the_job_runs(
    make_broker: BrokerFactory, object_store: ObjectStore, proxy: StoreProxy, tmp_path: Path
) -> None:
    bootstrap = make_broker(offsets_partitions=2).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    file = tmp_path / "credentials"
    options = object_store.options(endpoint=proxy.endpoint)
    keyless = {name: value for name, value in options.items() if "_KEY" not in name}
    renew(file, "writer")
    job = JobProcess(
        tmp_path / "job",
        bootstrap,
        table_root=object_store.new_root(),
        storage_options=object_store.options(),
        environment=keyless | {"AWS_FORCE_CREDENTIAL_LOAD": "true", "AWS_SHARED_CREDENTIALS_FILE": str(file)},
    )
    try:
        job.start()
        kafka.wait_until(lambda: committed(job) == 1, "the first offset", timeout_s=300)
        proxy.set_faults(Fault(user="writer", status=403, code="ExpiredToken"))
        kafka.wait_until(lambda: "failed, retrying" in job.output, "a failed heartbeat", timeout_s=60)
        renew(file, "second")
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 2})
        kafka.wait_until(lambda: committed(job) == 2, "the next offset", timeout_s=60)
        job.check()
        assert {request.user for request in proxy.seen()} == {"writer", "second"}
        assert job.stop() == 0, job.output
    finally:
        job.kill()
        print(job.output)
    assert job.starts == 1
    check_history(job.tables)


def renew(file: Path, user: str) -> None:
    file.with_suffix(".new").write_text(
        f"[default]\naws_access_key_id = {user}\naws_secret_access_key = {user}-secret\n"
    )
    file.with_suffix(".new").rename(file)


def committed(job: JobProcess) -> int | None:
    job.check()
    if len(job.tables.existing()) < len(SCHEMAS):  # they are created one after the other
        return None
    rows = job.tables.read(["g"]).offsets.to_pylist()
    return rows[0]["committed_offset"] if rows else None


@contextmanager
def killed_at_the_end(*jobs: JobProcess) -> Iterator[None]:
    """Kill what still runs at the end of the block, and print what the jobs said."""
    try:
        yield
    finally:
        for job in jobs:
            if job.starts:
                job.kill()
                print(job.output)


@pytest.mark.timeout(600)
def test_a_second_job_is_refused_and_replaces_only_one_that_no_longer_works(
    make_broker: BrokerFactory, object_store: ObjectStore, tmp_path: Path
) -> None:
    """As from two machines: each has a checkpoint of its own."""
    bootstrap = make_broker(offsets_partitions=2).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    root, options = object_store.new_root(), object_store.options()
    first, second = (
        JobProcess(tmp_path / name, bootstrap, table_root=root, storage_options=options, environment=options)
        for name in ("first", "second")
    )
    with killed_at_the_end(first, second):
        first.start()
        kafka.wait_until(lambda: committed(first) == 1, "the first offset", timeout_s=300)
        second.start("rebuild")
        assert second.wait() == 2, second.output
        assert "another job is writing to the tables" in second.output
        first.check()

        os.killpg(first.driver.pid, signal.SIGSTOP)
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 2})
        second.start("rebuild")
        assert second.wait() == 0, second.output
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 3})
        held = {name: first.tables.delta(name).version() for name in first.tables.existing()}
        os.killpg(first.driver.pid, signal.SIGCONT)
        assert first.wait() == 2, first.output
        assert "expected to be their only writer" in first.output
        assert {name: first.tables.delta(name).version() for name in first.tables.existing()} == held
        [row] = first.tables.read(["g"]).offsets.to_pylist()
        assert row["committed_offset"] == 2
    check_history(first.tables)


# --- the checkpoint on S3, too -----------------------------------------------------------------------------


@pytest.fixture
def two_folders() -> Iterator[tuple[str, str]]:
    """Folders for temporary files, as on two machines; with short paths, since long ones are not used: those
    of a Spark session in this process would be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as one, tempfile.TemporaryDirectory(dir="/tmp") as other:
        yield one, other


@pytest.mark.timeout(900)
def test_two_drivers_on_one_checkpoint_the_second_replaces_only_one_that_no_longer_works(
    make_broker: BrokerFactory, object_store: ObjectStore, tmp_path: Path, two_folders: tuple[str, str]
) -> None:
    bootstrap = make_broker(offsets_partitions=2).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    root, checkpoint = object_store.new_root(), object_store.new_checkpoint()
    options = object_store.options()
    first, second = (
        JobProcess(
            tmp_path / name,
            bootstrap,
            checkpoint=checkpoint,
            table_root=root,
            storage_options=options,
            environment={**options, "TMPDIR": folder},
        )
        for name, folder in zip(("first", "second"), two_folders, strict=True)
    )
    with killed_at_the_end(first, second):
        first.start()
        kafka.wait_until(lambda: committed(first) == 1, "the first offset", timeout_s=300)
        second.start()
        assert second.wait() == 2, second.output
        assert "another job is writing to the tables" in second.output
        first.check()

        kafka.commit_offsets(bootstrap, "g", {("t", 0): 2})  # perhaps in the middle of the batch
        first.suspend()
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 3})
        second.start()
        kafka.wait_until(lambda: committed(second) == 3, "the second job", timeout_s=300)
        first.resume()
        assert first.wait() == 2, first.output
        assert re.search("expected to be (their only writer|the only job on the checkpoint)", first.output)
        for number in range(4, 20):
            kafka.commit_offsets(bootstrap, "g", {("t", 0): number})
            kafka.wait_until(lambda number=number: committed(second) == number, f"{number}", timeout_s=60)  # type: ignore[misc]
        assert second.stop() == 0, second.output
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 20})
        first.start("run", "--once")
        assert first.wait() == 0, first.output
        assert committed_at_end(first) == 20
    check_history(first.tables)
    assert first.tables.progress().generation == 0, "a rebuild that nobody asked for"


def committed_at_end(job: JobProcess) -> int:
    [row] = job.tables.read(["g"]).offsets.to_pylist()
    return int(row["committed_offset"])


@pytest.mark.timeout(900)
def test_with_a_checkpoint_on_s3_the_job_goes_on_after_kills_on_a_bad_day(
    make_broker: BrokerFactory, object_store: ObjectStore, proxy: StoreProxy, tmp_path: Path
) -> None:
    """One machine without a folder that lasts, as a pod without a volume: only the checkpoint tells where to
    go on. Writes of the checkpoint that the store refuses are not taken for done."""
    bootstrap = make_broker(offsets_partitions=2).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 1})
    job = JobProcess(
        tmp_path / "job",
        bootstrap,
        checkpoint=object_store.new_checkpoint(),
        table_root=object_store.new_root(),
        storage_options=object_store.options(),
        environment=object_store.options(endpoint=proxy.endpoint),
    )
    chance = random.Random(SEED)
    number = 1
    try:
        for _ in range(2):
            job.start()
            proxy.set_faults(*TROUBLES[2:])
            for _ in range(3):
                kafka.wait_until(lambda number=number: committed(job) == number, f"{number}", timeout_s=300)  # type: ignore[misc]
                number += 1
                kafka.commit_offsets(bootstrap, "g", {("t", 0): number})
            time.sleep(chance.uniform(0, 2))
            job.kill()
            print(job.output)
        proxy.set_faults(Fault(kind="PUT", path=r"/lake/checkpoint-.*", status=403, code="AccessDenied"))
        job.start("run", "--once")
        assert job.wait() == 1, job.output
        assert re.search(r"S3Exception: .*403.* The store refused a request for the checkpoint", job.output)
        proxy.set_faults()
        job.start("run", "--once")
        assert job.wait() == 0, job.output
    finally:
        job.kill()
        print(job.output)
    assert committed_at_end(job) == number
    check_history(job.tables)
    assert job.tables.progress().generation == 0, "a rebuild that nobody asked for"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "NoSuchBucketException: .* Create the bucket, or check --checkpoint"),
        ({"AWS_SECRET_ACCESS_KEY": "s3cr3t"}, "SignatureDoesNotMatch.* Check AWS_ACCESS_KEY_ID, AWS_SECRET"),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "NoAuthWithAWSException: .* Set AWS_ACCESS_KEY",
        ),
        (
            {"AWS_ENDPOINT_URL": "a redirect"},
            "AWSRedirectException: .* Set AWS_REGION to the region of the bucket",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "ConnectException: .* Check the network, and AWS_ENDPOINT_URL",
        ),
    ],
    ids=["no bucket", "wrong secret", "no credentials", "another region", "no answer"],
)
def test_a_store_that_cannot_have_the_checkpoint_is_told_before_anything_is_read(
    broker: LocalBroker, object_store: ObjectStore, tmp_path: Path, changed: dict[str, str], told: str
) -> None:
    topic = tmp_path.name
    kafka.create_topics(broker.bootstrap_servers, {topic: 1})
    kafka.commit_offsets(broker.bootstrap_servers, "g", {(topic, 0): 1})  # so that there is something to read
    with answering(301, "PermanentRedirect", "Use another endpoint.") as redirect:
        environment = object_store.options() | changed
        if environment["AWS_ENDPOINT_URL"] == "a redirect":
            environment["AWS_ENDPOINT_URL"] = redirect
        bucket = "lake" if changed else "not-there"
        job = JobProcess(
            tmp_path, broker.bootstrap_servers, checkpoint=f"s3a://{bucket}/c", environment=environment
        )
        job.start()
        assert job.wait() == 1, job.output
    assert re.search(
        f"checkpoint s3a://{bucket}/c: expected a store that can be used, found .*{told}", job.output
    )
    assert "s3cr3t" not in job.output
    assert job.tables.existing() == [], "the query has started"
