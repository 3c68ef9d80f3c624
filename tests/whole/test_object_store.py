"""Tables on an object store, with a real S3 server: every step of the tables once, the job once, and what is
said where the store cannot be used. `make test-s3` does more: other servers, and test_job_on_s3.py."""

import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pyarrow as pa
import pytest
from answering_server import answering
from aws_endpoints import AwsProcess, start_aws_endpoints
from client_programs import MissingError
from deltalake import DeltaTable, write_deltalake
from history_checks import check_history, table_offsets
from maintenance_rounds import NOW, round_at
from memory_snapshots import groups_answered, groups_in, offsets_answered, offsets_in
from object_store import ObjectStore
from other_stores import OTHER_STORES, AzureStore
from pyspark.sql import SparkSession
from running_job import RunningJob
from store_proxy import Fault, StoreProxy, start_store_proxy
from table_batches import Batch, append, changes_of, group, offset

from streaming.demo.local_broker import LocalBroker, free_ports
from streaming.job.writer import ChangesCommitter
from streaming.model.errors import OffsetlakeError
from streaming.serve.memory.tailer import Tailer
from streaming.tables.rows import change_rows
from streaming.tables.storage_errors import TablesUnreachableError
from streaming.tables.tables import Tables

HOSTILE = ("", "it's", "a/b?c=d&e", "%2F..", "ünï-😀", "a\x00b", "x" * 32_767)
"""Names that would be trouble in the key of an object."""
WRITERS, ROWS = 2, 10
BATCHES = 8  # as many small files are worth a compaction
SECRET = "writer-secret"

only_in_test_s3 = pytest.mark.skipif("S3" not in os.environ, reason="`make test-s3` runs it")


def other(name: str, *more: object) -> Any:
    """Return a parameter that is another server, and more parameters."""
    return pytest.param(name, *more, marks=only_in_test_s3)


@pytest.fixture(scope="module", params=["SeaweedFS", *map(other, OTHER_STORES)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Each server that can be had: the one of `make test`, and others."""
    if request.param == "SeaweedFS":
        yield request.getfixturevalue("object_store")
        return
    with ExitStack() as running:
        try:
            start = OTHER_STORES[request.param](tmp_path_factory.mktemp("store"))
            found = running.enter_context(start)
        except MissingError as error:
            pytest.skip(f"{request.param} cannot be had: {error}")
        yield found


def test_tables_are_written_read_followed_and_maintained(store: ObjectStore) -> None:
    tables = store.tables()
    tables.create()
    tailer = Tailer(tables)
    for number in range(1, BATCHES + 1):
        live = batch_of(number - 1) if number > 1 else {}
        append(tables, batch_of(number), live=live, now=NOW - 10_000 + number * 1_000)
        assert tailer.poll(), tailer.last_poll
        if number in (1, 3, BATCHES):  # at first, after the fold, and at last
            assert offsets_in(tailer.current) == offsets_answered(tables)
            assert groups_in(tailer.current) == groups_answered(tables)
        if number == 2:
            assert tables.fold() == len(HOSTILE) + 1
    assert offsets_of(tables) == dict.fromkeys(HOSTILE, BATCHES)
    assert offsets_of(tables, as_of=NOW - 9_000) == dict.fromkeys(HOSTILE, 1)
    reports = round_at(tables, NOW)
    assert reports["changes"].files_after < reports["changes"].files_before
    assert offsets_of(tables) == dict.fromkeys(HOSTILE, BATCHES)
    assert tailer.poll(), tailer.last_poll
    tables.delete()
    assert tables.existing() == []


@only_in_test_s3
def test_of_two_writers_of_one_version_only_one_is_taken(store: ObjectStore) -> None:
    """Each commit is a conditional write: delta-rs writes a refused one as a later version."""
    root, options = store.new_root(), store.options()
    write_deltalake(root, pa.table({"writer": [-1]}), storage_options=options)
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(append_rows, repeat(root), repeat(options), range(WRITERS)))
    rows = DeltaTable(root, storage_options=options).to_pyarrow_table()
    assert Counter(rows["writer"].to_pylist()) == {-1: 1} | dict.fromkeys(range(WRITERS), ROWS)


def append_rows(root: str, options: dict[str, str], writer: int) -> None:
    for _ in range(ROWS):
        write_deltalake(root, pa.table({"writer": [writer]}), mode="append", storage_options=options)


def batch_of(number: int) -> Batch:
    offsets: Batch = {(name, "t", 0): offset(committed_offset=number) for name in HOSTILE}
    return {**offsets, "it's": group(generation_or_epoch=number)}


def offsets_of(tables: Tables, *, as_of: int | None = None) -> dict[str, int]:
    rows = tables.read(as_of=as_of).offsets.to_pylist()
    return {row["group"]: row["committed_offset"] for row in rows}


@pytest.mark.more
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
def test_a_job_fills_tables_on_an_object_store(
    store: ObjectStore,
    broker: LocalBroker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job in a process of its own does in `make test-s3`: test_job_on_s3.py."""
    bootstrap = broker.bootstrap_servers
    topic = tmp_path.name  # of this store
    kafka.create_topics(bootstrap, {topic: 1})
    kafka.commit_offsets(bootstrap, "on-a-store", {(topic, 0): 7})
    options = store.options()
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    job = RunningJob(spark, bootstrap, tmp_path, options={"tables.root": store.new_root()})
    job.run_once()
    assert job.reports
    assert not any(value in str(job.said) for name, value in options.items() if name.endswith("_KEY"))
    assert not (tmp_path / "tables").exists()
    tables = Tables(job.tables.root, options)
    assert table_offsets(tables) == kafka.broker_offsets(bootstrap)
    check_history(tables)


# --- what is said where the store cannot be used -----------------------------------------------------------

NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}

REGION_ANSWERS = {
    "a redirect": (301, "PermanentRedirect", "The bucket must be addressed using the specified endpoint."),
    "a refusal": (
        400,
        "AuthorizationHeaderMalformed",
        "The region 'us-east-1' is wrong; expecting 'eu-west-3'",
    ),
}


def look(tables: Tables) -> str:
    """Look at tables as the job does before it starts Spark; return the error."""
    with pytest.raises(TablesUnreachableError) as refused:
        tables.at_first().progress_if_any()
    said = str(refused.value)
    assert said.startswith(f"reading {tables.root}/changes: expected a Delta table, found: ")
    assert SECRET not in said
    assert "\n" not in said
    return said


def test_a_bucket_that_does_not_exist_is_named(store: ObjectStore) -> None:
    said = look(store.tables(f"{store.place}-not-there/offsets"))
    bucket = "container" if isinstance(store, AzureStore) else "bucket"
    assert f"The specified {bucket} does not exist." in said
    assert said.endswith(f". Create the {bucket}, or check --table-root.")


CHECK_AWS_KEYS = (
    "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, which the store refuses"
)
CHECK_AZURE_KEYS = "Check AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or the other credentials"
WRONG_SECRET = {"AWS_SECRET_ACCESS_KEY": "s3cr3t"}
WRONG_ID = {"AWS_ACCESS_KEY_ID": "nobody"}


@pytest.mark.parametrize(
    ("store", "changed", "code"),
    [
        ("SeaweedFS", WRONG_SECRET, "SignatureDoesNotMatch"),
        ("SeaweedFS", WRONG_ID, "InvalidAccessKeyId"),
        other("versitygw", WRONG_SECRET, "SignatureDoesNotMatch"),
        other("versitygw", WRONG_ID, "XAdminUserNotFound"),
        other("Azurite", {"AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0"}, "AuthorizationFailure"),
        other("Azurite", {"AZURE_STORAGE_ACCOUNT_KEY": "s3cr3t"}, "Invalid Access Key"),
    ],
    indirect=["store"],
)
def test_refused_credentials_are_told_from_a_missing_permission(
    store: ObjectStore, changed: dict[str, str], code: str
) -> None:
    said = look(store.tables(**changed))
    assert code in said
    assert (CHECK_AZURE_KEYS if isinstance(store, AzureStore) else CHECK_AWS_KEYS) in said
    assert "s3cr3t" not in said


def test_a_user_who_may_only_read_is_told_what_is_missing(object_store: ObjectStore) -> None:
    root = object_store.new_root()
    object_store.tables(root).create()
    reader = Tables(root, object_store.options("reader"))
    assert reader.at_first().progress_if_any().sequence == 0
    with pytest.raises(
        TablesUnreachableError, match=r"AccessDenied: .*\. Grant the user the permissions that"
    ):
        append(reader, {"g": group()})


def test_a_machine_without_credentials_is_told_so(object_store: ObjectStore) -> None:
    options = object_store.options()
    for name in NO_KEYS:
        del options[name]
    options["AWS_METADATA_ENDPOINT"] = f"http://127.0.0.1:{free_ports(1)[0]}"
    said = look(Tables(object_store.new_root(), options))
    assert "No credentials were found, and this machine has no role: set AWS_ACCESS_KEY_ID and" in said


def test_http_has_to_be_allowed(object_store: ObjectStore) -> None:
    said = look(object_store.tables(AWS_ALLOW_HTTP="false"))
    assert "Use an endpoint with https, or, in a network that you trust, set AWS_ALLOW_HTTP=true" in said


@pytest.mark.parametrize("answer", REGION_ANSWERS.values(), ids=list(REGION_ANSWERS))
def test_a_bucket_in_another_region_is_told_from_other_refusals(
    object_store: ObjectStore, answer: tuple[int, str, str]
) -> None:
    with answering(*answer) as endpoint:
        said = look(object_store.tables(AWS_ENDPOINT_URL=endpoint))
    assert said.endswith(
        "Set AWS_REGION to the region of the bucket, in [tables.storage_options] or the environment."
    )
    if answer[0] == 400:
        assert "expecting 'eu-west-3'" in said


@only_in_test_s3
def test_an_answer_that_repeats_a_session_token_is_not_shown(object_store: ObjectStore) -> None:
    with answering(
        400, "ExpiredToken", "The provided token has expired.", more="<Token-0>t0k3n</Token-0>"
    ) as at:
        said = look(object_store.tables(AWS_ENDPOINT_URL=at))
    assert "ExpiredToken: The provided token has expired. Renew the credentials" in said
    assert "t0k3n" not in said


@pytest.mark.parametrize("kind", ["refuses", pytest.param("is silent", marks=only_in_test_s3)])
def test_a_store_that_does_not_answer_is_given_up_on_within_seconds(store: ObjectStore, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = free_ports(1)[0] if kind == "refuses" else silent.getsockname()[1]
        options = store.options(endpoint=f"http://127.0.0.1:{port}")
        said = look(Tables(store.new_root(), options))
    assert "retry_timeout ↳ 8s" in said
    [name] = [name for name in options if "_ENDPOINT" in name]
    assert re.search(rf"Check the network, .*{name} in \[tables.storage_options\] or the environment", said)


def test_the_command_says_so_before_it_starts_spark(
    object_store: ObjectStore, offsetlake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in object_store.options().items():
        monkeypatch.setenv(name, value)
    ended = offsetlake("run", "--once", "--table-root", "s3://not-there/offsets")
    assert ended.code == 1
    assert ended.err.splitlines()[-1].endswith("Create the bucket, or check --table-root.")
    assert "starting Spark" not in ended.err
    assert list(tmp_path.iterdir()) == []


# --- answers that never came, and credentials that change --------------------------------------------------


@pytest.fixture(scope="module")
def proxy(object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProxy]:
    with start_store_proxy(tmp_path_factory.mktemp("proxy"), object_store.endpoint) as running:
        yield running
        print(running.suffered())


@pytest.fixture
def through(object_store: ObjectStore, proxy: StoreProxy) -> Iterator[Tables]:
    """Tables whose requests go through the proxy, with two batches."""
    tables = object_store.tables(AWS_ENDPOINT_URL=proxy.endpoint)
    tables.create()
    append(tables, {("g", "t", 0): offset(committed_offset=1)})
    append(
        tables,
        {("g", "t", 0): offset(committed_offset=2)},
        live={("g", "t", 0): offset(committed_offset=1)},
    )
    proxy.seen()
    yield tables
    proxy.set_faults()


COMMIT = r".*/{}/_delta_log/\d+\.json"


def lost(table: str, times: int | None) -> Fault:
    """The answers to the first commits to a table are lost (None: to all): the commits arrive."""
    return Fault(kind="PUT", path=COMMIT.format(table), times=times, is_cut=True, arrives=True)


def until_done(proxy: StoreProxy, act: Callable[[], object]) -> str | None:
    """Act with the faults of the proxy, then, if that failed, without; return the failure."""
    try:
        act()
    except OffsetlakeError as error:
        proxy.set_faults()
        act()
        return str(error)
    return None


@only_in_test_s3
@pytest.mark.parametrize("times", [1, None], ids=["once", "each time"])
def test_a_batch_whose_answer_was_lost_is_in_the_tables_once(
    through: Tables, proxy: StoreProxy, times: int | None
) -> None:
    """After the first lost answer delta-rs asks again, and finds its own commit; at last it gives up."""
    before = through.progress()
    after = replace(
        before, sequence=3, batch_id=(before.batch_id or 0) + 1, batch_time=3_000, heartbeat=3_000
    )
    batch: Batch = {("g", "t", 0): offset(committed_offset=3)}
    rows, _ = change_rows(
        changes_of(batch, {("g", "t", 0): offset(committed_offset=2)}), sequence=3, batch_time=3_000
    )
    proxy.set_faults(lost("changes", times))
    writer = ChangesCommitter(through, before)
    said = until_done(proxy, lambda: writer.append(rows, after, is_batch=True))
    proxy.set_faults()
    assert (said is None) == (times == 1)
    assert said is None or "the store did not answer" in said
    assert len(through.read_changes()) == 3
    assert through.progress() == after
    check_history(through)


@only_in_test_s3
@pytest.mark.parametrize("times", [1, None], ids=["once", "each time"])
def test_a_fold_whose_answer_was_lost_is_done_once(
    through: Tables, proxy: StoreProxy, times: int | None
) -> None:
    proxy.set_faults(lost("offsets", times))
    until_done(proxy, through.fold)
    proxy.set_faults()
    assert through.delta("offsets").to_pyarrow_table()["committed_offset"].to_pylist() == [2]
    assert through.unfolded_rows() == 0


@only_in_test_s3
def test_credentials_that_are_renewed_in_a_file_are_read_again(
    object_store: ObjectStore, proxy: StoreProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opening of a table reads them: a job that opens tables for each commit goes on."""
    root = object_store.new_root()
    object_store.tables(root).create()
    tables = keyless(object_store, proxy, root)
    monkeypatch.setenv("AWS_FORCE_CREDENTIAL_LOAD", "true")
    monkeypatch.setenv("AWS_PROFILE", "lake")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for user in ("reader", "writer"):
        (tmp_path / "credentials").write_text(
            f"[lake]\naws_access_key_id = {user}\naws_secret_access_key = {user}-secret\n"
        )
        proxy.seen()
        tables.progress()
        assert {request.user for request in proxy.seen()} == {user}
    append(tables, {"g": group()})


OF_ROLES = {
    "an instance": {"AWS_METADATA_ENDPOINT": "{url}"},
    "an instance, by the SDK": {
        "AWS_FORCE_CREDENTIAL_LOAD": "true",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": "{url}",
    },
    "a container": {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "{url}/container",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "{token}",
    },
    "a container, by the SDK": {
        "AWS_FORCE_CREDENTIAL_LOAD": "true",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": "{url}/container",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "{token}",
    },
    "a web identity, by the SDK": {
        "AWS_FORCE_CREDENTIAL_LOAD": "true",
        "AWS_ENDPOINT_URL_STS": "{url}",
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/lake",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "{token}",
    },
}
"""Environments in which delta-rs gets the credentials of a role. It asks by itself if an endpoint is set;
otherwise, or if forced, the SDK of AWS asks. By itself it asks STS by https only."""


@pytest.fixture
def role(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AwsProcess]:
    """What gives out the credentials of a role, whose environment this process has."""
    token = tmp_path / "token"
    token.write_text("t0k3n")
    with start_aws_endpoints(tmp_path) as aws:
        for name, value in OF_ROLES[request.param].items():
            monkeypatch.setenv(name, value.format(url=aws.url, token=token))
        yield aws


def keyless(store: ObjectStore, proxy: StoreProxy, root: str) -> Tables:
    options = store.options(endpoint=proxy.endpoint)
    return Tables(root, {name: value for name, value in options.items() if name not in NO_KEYS})


@only_in_test_s3
@pytest.mark.parametrize("role", OF_ROLES, indirect=True)
def test_credentials_of_a_role_are_renewed_when_they_expire(
    object_store: ObjectStore, proxy: StoreProxy, role: AwsProcess
) -> None:
    """An open table gets new ones, too, and so does a tailer, which opens tables at each poll."""
    root = object_store.new_root()
    object_store.tables(root).create()
    tables = keyless(object_store, proxy, root)
    proxy.seen()
    give(role, "reader")
    tailer, held = Tailer(tables), tables.delta("changes")
    assert tailer.poll(), tailer.last_poll
    assert {request.user for request in proxy.seen()} == {"reader"}

    give(role, "writer")
    kafka.wait_until(lambda: users_of(held, proxy) == {"writer"}, "a renewal", timeout_s=60)
    append(tables, {("g", "t", 0): offset(committed_offset=1)})
    assert tailer.poll(), tailer.last_poll
    assert offsets_in(tailer.current) == offsets_answered(tables)
    assert "writer" in {request.user for request in proxy.seen()}


def give(role: AwsProcess, user: str) -> None:
    """Give out the keys of a user of the store, which has no session tokens, for two seconds."""
    keys = (user, f"{user}-secret", "")
    role.set(of_instance=keys, of_sts=keys, lifetime_s=2)


def users_of(held: DeltaTable, proxy: StoreProxy) -> set[str]:
    held.update_incremental()
    return {request.user for request in proxy.seen()}


@only_in_test_s3
@pytest.mark.parametrize("role", ["a web identity, by the SDK"], indirect=True)
def test_a_web_identity_that_is_refused_is_told_so(
    object_store: ObjectStore, proxy: StoreProxy, role: AwsProcess
) -> None:
    role.set(refusal=("InvalidIdentityToken", "The ID Token provided is not a valid JWT"))
    said = look(keyless(object_store, proxy, object_store.new_root()))
    assert "t0k3n" not in said
    assert "InvalidIdentityToken" in said
    assert "Check AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN_FILE, AWS_PROFILE or AWS_CONTAINER_" in said


@only_in_test_s3
@pytest.mark.parametrize("role", ["a web identity, by the SDK"], indirect=True)
def test_a_web_identity_token_that_is_not_there_is_told_so(
    object_store: ObjectStore, proxy: StoreProxy, role: AwsProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/not-there")
    said = look(keyless(object_store, proxy, object_store.new_root()))
    assert "No such file or directory (os error 2). Check AWS_ROLE_ARN with AWS_WEB_IDENTITY_TOKEN" in said


@only_in_test_s3
@pytest.mark.parametrize("option", ["AWS_METADATA_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT"])
def test_a_metadata_service_that_is_silent_is_given_up_on_within_seconds(
    object_store: ObjectStore, proxy: StoreProxy, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(option, f"http://127.0.0.1:{silent.getsockname()[1]}")
        if option == "AWS_EC2_METADATA_SERVICE_ENDPOINT":
            monkeypatch.setenv("AWS_FORCE_CREDENTIAL_LOAD", "true")
        said = look(keyless(object_store, proxy, object_store.new_root()))
    assert "No credentials were found, and this machine has no role: set AWS_ACCESS_KEY_ID and" in said


@only_in_test_s3
@pytest.mark.parametrize("kind", ["LIST", "GET", "HEAD"])
@pytest.mark.parametrize("command", ["offsets", "maintain"])
def test_commands_say_what_they_may_not_do(
    through: Tables,
    proxy: StoreProxy,
    offsetlake: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    command: str,
) -> None:
    for name, value in through.storage_options.items():
        monkeypatch.setenv(name, value)
    proxy.set_faults(Fault(kind=kind, status=403, code="AccessDenied"))
    ended = offsetlake(command, "--table-root", through.root)
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "403 Forbidden" in ended.err
