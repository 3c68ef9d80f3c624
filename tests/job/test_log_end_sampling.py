"""Log ends that are sampled beside the job: from real brokers, with topics that come, go and are refused."""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType
from conftest import BrokerFactory
from pyspark.sql import SparkSession
from running_job import RunningJob
from table_batches import append, group, offset

from streaming.brokers import log_end_reader
from streaming.brokers.broker import QUICK_TIMEOUT_S, REQUEST_TIMEOUT_S, Broker
from streaming.brokers.facts import TopicState
from streaming.brokers.log_end_reader import DISCARDED_AFTER_MS, ROUND_DISCARDED_AFTER_MS, LogEndReader, Round
from streaming.common.times import DAY_MS, MINUTE_MS, from_ms, now_ms, to_ms
from streaming.demo.local_broker import LocalBroker
from streaming.job.log_ends.rows import TOPICS_EVERY_MS, RowMaker
from streaming.job.log_ends.sampler import LogEndSampler
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.log_ends import SampleFiles, topics_over_time
from streaming.tables.tables import Tables

GONE = "UNKNOWN_TOPIC_OR_PARTITION"
DENIED = "TOPIC_AUTHORIZATION_FAILED"
AT = 1_800_000_000_000


def settings(bootstrap: str) -> Settings:
    quick = {"source.connect_timeout": "5s", "log_ends.every": "300ms"}
    return read_settings(options={"source.bootstrap_servers": bootstrap, **quick})


class Asking(Broker):
    """Waits only so long for answers."""

    patience_s = REQUEST_TIMEOUT_S

    def topics(self, names: Iterable[str], timeout_s: float = 0) -> dict[str, TopicState]:
        return super().topics(names, timeout_s or self.patience_s)


def sampler(tables: Tables, bootstrap: str) -> LogEndSampler:
    given = settings(bootstrap)
    return LogEndSampler(tables, Broker(given.source), given.log_ends)


def samples(tables: Tables) -> list[dict[str, Any]]:
    """All rows, in the order of time, topic and partition; those about topics first."""
    rows = tables.delta("log_ends").to_pyarrow_table().to_pylist()
    return sorted(
        rows,
        key=lambda row: (
            row["sampled_at"],
            row["topic"],
            -1 if row["partition"] is None else row["partition"],
        ),
    )


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        tuple(row[name] for name in ("topic", "partition", "log_start", "log_end", "error")) for row in rows
    ]


def produce(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    kafka.produce_raw(bootstrap, topic, [(b"k", b"v")] * count, partition=partition)


def topic_id(bootstrap: str, topic: str) -> str | None:
    state = Broker(settings(bootstrap).source).topics([topic])[topic]
    return state.topic_id


def commit_to(tables: Tables, *keys: tuple[str, int], subscribed: list[str] | None = None) -> None:
    """Let the tables have committed offsets of these topic partitions."""
    offsets = {("g", topic, number): offset() for topic, number in keys}
    append(tables, {**offsets, "g": group(subscribed_topics=subscribed)})


@pytest.mark.broker
def test_committed_partitions_are_sampled_and_subscribed_topics_keep_their_ids(
    broker: LocalBroker, tables: Tables, said: list[str]
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"ends-a": 3, "ends-b": 1, "ends-c": 1})
    produce(bootstrap, "ends-a", 3)
    produce(bootstrap, "ends-a", 5, partition=1)
    ids = {topic: topic_id(bootstrap, topic) for topic in ("ends-a", "ends-b", "ends-c")}
    sampling = sampler(tables, bootstrap)
    assert sampling.sample()
    assert samples(tables) == []  # nothing is committed
    commit_to(
        tables, ("ends-a", 0), ("ends-a", 1), ("ends-a", 7), ("no\0topic", 0), subscribed=["ends-b", "x y"]
    )
    before = now_ms()
    assert sampling.sample()
    first = samples(tables)
    assert told(first) == [
        ("ends-a", None, None, None, None),
        ("ends-a", 0, 0, 3, None),
        ("ends-a", 1, 0, 5, None),
        ("ends-b", None, None, None, None),
    ]
    assert [row["topic_id"] for row in first] == [*[ids["ends-a"]] * 3, ids["ends-b"]]
    [sampled_at] = {row["sampled_at"] for row in first}
    assert from_ms(before) <= sampled_at <= from_ms(now_ms())
    assert {row["day"] for row in first} == {sampled_at.date()}

    produce(bootstrap, "ends-a", 4)
    commit_to(tables, ("ends-c", 0))  # read from what has changed since
    assert sampling.sample()
    assert told(samples(tables)[len(first) :]) == [
        ("ends-a", 0, 0, 7, None),
        ("ends-a", 1, 0, 5, None),
        ("ends-c", None, None, None, None),
        ("ends-c", 0, 0, 0, None),
    ]
    assert said == []


@pytest.mark.broker
def test_partitions_that_members_have_are_sampled_though_nothing_is_committed(
    broker: LocalBroker, tables: Tables, said: list[str]
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"had-a": 3, "had-b": 2, "had-c": 1})
    produce(bootstrap, "had-a", 3, partition=1)

    def having(*assigned: tuple[str | None, str | None, list[int]], **changed: Any) -> dict[str, Any]:
        parts = [dict(zip(("topic", "topic_id", "partitions"), one, strict=True)) for one in assigned]
        return group(members=[{"member_id": "m", "assignment": parts}, {"member_id": "n"}], **changed)

    of_b, of_c = topic_id(bootstrap, "had-b"), topic_id(bootstrap, "had-c")
    append(tables, {"old": having(("had-a", None, [1])), "shares": having((None, of_c, [0]), type="share")})
    tables.fold()
    sampling = sampler(tables, bootstrap)
    assert sampling.sample()
    assert told(samples(tables)) == [("had-a", None, None, None, None), ("had-a", 1, 0, 3, None)]
    append(tables, {"new": having((None, of_b, [0]), subscribed_topics=["had-b", "had-c"], type="consumer")})
    assert sampling.sample()  # learns the name
    first = len(samples(tables))
    assert sampling.sample()
    assert told(samples(tables)[first:]) == [("had-a", 1, 0, 3, None), ("had-b", 0, 0, 0, None)]
    assert said == []


@pytest.mark.broker
def test_a_topic_that_brokers_refuse_does_not_cost_the_samples_of_others(
    broker: LocalBroker, tables: Tables, said: list[str]
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"beside": 1})
    commit_to(tables, ("beside", 0))
    sampling = sampler(tables, bootstrap)
    assert sampling.sample()
    commit_to(tables, (".", 0), subscribed=[".."])  # no answer about it: asked for anew in every round
    for _ in range(2):
        assert sampling.sample()
    assert sampler(tables, bootstrap).sample()
    ends = [row for row in told(samples(tables)) if row[1] == 0]
    assert ends == [("beside", 0, 0, 0, None)] * 4
    assert said == []


@pytest.mark.broker
def test_log_starts_are_asked_for_in_some_rounds_and_kept_for_the_others(
    broker: LocalBroker, tables: Tables
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"starts": 1})
    produce(bootstrap, "starts", 5)
    reader = LogEndReader(Broker(settings(bootstrap).source), now_ms)
    asked = {"starts": [0]}

    def start() -> Any:
        answer = reader.read(asked, [])
        assert answer is not None
        return answer.starts[("starts", 0)]

    assert start() == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition("starts", 0, 2)]).values():
        deleted.result(10)
    assert [start() for _ in range(10)] == [0] * 9 + [2]


@pytest.mark.broker
def test_ids_of_many_topics_are_requested_in_turn_and_at_once_where_an_end_fell(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_end_reader, "IDS_AT_ONCE", 1)
    monkeypatch.setattr(log_end_reader, "IDS_EVERY", 3)
    bootstrap, names = broker.bootstrap_servers, ["turn-1", "turn-2", "turn-3"]
    kafka.create_topics(bootstrap, dict.fromkeys(names, 1))
    for name in names:
        produce(bootstrap, name, 5)
    reader = LogEndReader(Broker(settings(bootstrap).source), now_ms)

    def read() -> Round:
        answer = reader.read({name: [0] for name in names}, [])
        assert answer is not None
        return answer

    rounds = [read() for _ in range(6)]
    assert [len(answer.asked) for answer in rounds] == [1] * 6
    assert sorted(name for answer in rounds[:3] for name in answer.asked) == names
    assert [answer.asked for answer in rounds[3:]] == [answer.asked for answer in rounds[:3]]
    assert all(answer.ends == {(name, 0): 5 for name in names} for answer in rounds)

    [next_in_turn], [other] = rounds[0].asked, rounds[2].asked
    old = topic_id(bootstrap, other)
    kafka.delete_topics(bootstrap, other)
    kafka.wait_until(lambda: other not in topics_of(bootstrap), "the deletion")
    kafka.create_topics(bootstrap, {other: 1})
    produce(bootstrap, other, 2)
    fallen = read()
    assert fallen.asked == {next_in_turn, other}
    assert (other, 0) not in fallen.ends  # another topic than before
    kafka.wait_until(lambda: (other, 0) in read().ends, "the end of the new topic")
    answer = read()
    assert (answer.topics[other].topic_id, answer.ends[(other, 0)]) == (topic_id(bootstrap, other), 2)
    assert answer.topics[other].topic_id != old

    kafka.create_topics(bootstrap, {"turn-4": 1})
    answer = reader.read({name: [0] for name in [*names, "turn-4"]}, [])
    assert answer is not None
    assert "turn-4" in answer.asked


@pytest.mark.broker
def test_a_topic_that_is_deleted_and_recreated_is_another_one(
    make_broker: BrokerFactory, tables: Tables, said: list[str]
) -> None:
    # with auto-creation, a request that names a topic that was deleted could bring it back
    running = make_broker(offsets_partitions=1, overrides={"auto.create.topics.enable": "true"})
    bootstrap = running.bootstrap_servers
    kafka.create_topics(bootstrap, {"anew": 1, "stays": 1})
    produce(bootstrap, "anew", 5)
    old = topic_id(bootstrap, "anew")
    commit_to(tables, ("anew", 0), ("stays", 0))
    sampling = sampler(tables, bootstrap)
    for _ in range(2):
        assert sampling.sample()
    last_seen = samples(tables)[-1]["sampled_at"]

    kafka.delete_topics(bootstrap, "anew")
    kafka.wait_until(lambda: "anew" not in topics_of(bootstrap), "the deletion")
    count = len(samples(tables))
    for _ in range(3):
        assert sampling.sample()
    assert "anew" not in topics_of(bootstrap)
    gone = [row for row in samples(tables)[count:] if row["topic"] == "anew"]
    assert told(gone) == [("anew", None, None, None, GONE)]
    [about_old] = [
        row
        for row in samples(tables)[:count]
        if row["topic"] == "anew" and row["sampled_at"] == last_seen and row["partition"] is None
    ]
    assert (about_old["topic_id"], about_old["error"]) == (old, None)  # when it was last seen
    [sentence] = said
    assert sentence == "log ends: the brokers have no topic anew, although there are committed offsets of it."
    newest = tables.ask(lambda at: at.newest_ends(None, as_of=now_ms()))
    assert newest["topic"].to_pylist() == ["stays"]

    kafka.create_topics(bootstrap, {"anew": 1})
    produce(bootstrap, "anew", 2)
    new = topic_id(bootstrap, "anew")
    assert new != old
    for _ in range(2):
        assert sampling.sample()
    [*_, end] = [row for row in samples(tables) if row["topic"] == "anew"]
    assert (end["topic_id"], end["log_end"]) == (new, 2)
    assert said[1:] == ["log ends: the brokers have all topics with committed offsets."]
    seen = topics_over_time(SampleFiles(tables.delta("log_ends")), ["anew"], as_of=now_ms()).to_pylist()
    assert [row["topic_id"] for row in seen] == [old, new]
    assert seen[0]["last_at"] == last_seen < seen[1]["first_at"]


def topics_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)


@pytest.mark.more
@pytest.mark.broker
def test_a_topic_that_may_not_be_described_and_brokers_that_are_away_are_said_once(
    make_broker: BrokerFactory, tables: Tables, said: list[str]
) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    overrides = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    running = make_broker(offsets_partitions=1, overrides=overrides)
    bootstrap = running.bootstrap_servers
    kafka.create_topics(bootstrap, {"open": 1, "secret": 1})
    produce(bootstrap, "secret", 3)
    commit_to(tables, ("open", 0), ("secret", 0))
    given = settings(bootstrap)
    asking = Asking(given.source)
    sampling = LogEndSampler(tables, asking, given.log_ends)
    assert sampling.sample()
    kept = ("secret", None, None, None, None), ("secret", 0, 0, 3, None)
    assert [row for row in told(samples(tables)) if row[0] == "secret"] == [*kept]

    kafka.deny(bootstrap, ResourceType.TOPIC, "secret", AclOperation.DESCRIBE)
    kafka.wait_until(lambda: topic_error(bootstrap, "secret") == DENIED, "the right to go")
    for _ in range(2):
        assert sampling.sample()
    refused = [row for row in told(samples(tables)) if row[0] == "secret"][2:]
    assert refused == [("secret", None, None, None, DENIED)]
    assert [row[3] for row in told(samples(tables)) if row[:2] == ("open", 0)] == [0, 0, 0]
    assert said == [
        "log ends: this user may not describe topic secret, so that lag is not known. "
        "Grant Describe on topics."
    ]

    said.clear()
    count = len(samples(tables))
    running.kill()
    asking.patience_s = 1.0
    assert not sampling.sample()
    assert not sampling.sample()
    asking.patience_s = REQUEST_TIMEOUT_S
    [sentence] = said
    assert sentence.startswith("sampling log ends failed, retrying: BrokerError: asking 127.0.0.1:")
    assert len(samples(tables)) == count
    running.start()
    end = ("open", 0, 0, 0, None)
    kafka.wait_until(
        lambda: sampling.sample() and end in told(samples(tables)[count:]),
        "the leader to answer",
        timeout_s=60,
    )
    assert "log ends are sampled again" in said[1:]
    running.kill()


def topic_error(bootstrap: str, topic: str) -> str | None:
    return Broker(settings(bootstrap).source).topics([topic])[topic].error


def test_requests_time_out_before_their_log_ends_are_discarded() -> None:
    with_leaders_s = REQUEST_TIMEOUT_S + QUICK_TIMEOUT_S  # which are learnt after a refusal
    assert with_leaders_s * 1_000 < DISCARDED_AFTER_MS < ROUND_DISCARDED_AFTER_MS


@pytest.mark.broker
@pytest.mark.parametrize("jump", [DAY_MS, -DAY_MS, DISCARDED_AFTER_MS + 1])
def test_ends_of_which_nobody_knows_the_moment_are_not_kept(broker: LocalBroker, jump: int) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {f"jump-{abs(jump)}-{jump > 0}": 1})
    times: Iterator[int] = iter([AT, AT + jump, AT + jump, AT + jump])
    asked = {f"jump-{abs(jump)}-{jump > 0}": [0]}
    broken = LogEndReader(Broker(settings(bootstrap).source), lambda: next(times))
    assert broken.read(asked, []) is None
    answer = LogEndReader(Broker(settings(bootstrap).source), lambda: AT).read(asked, [])
    assert answer is not None
    assert (answer.sampled_at, list(answer.ends.values())) == (AT, [0])


@pytest.mark.broker
def test_rounds_that_are_always_too_slow_are_said_once(
    broker: LocalBroker, tables: Tables, said: list[str]
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"slow": 1})
    commit_to(tables, ("slow", 0))
    given, at, step = settings(bootstrap), [AT], [DISCARDED_AFTER_MS + 1]

    def clock() -> int:
        at[0] += step[0]
        return at[0]

    sampling = LogEndSampler(tables, Broker(given.source), given.log_ends, clock)
    assert [sampling.sample(), sampling.sample(), said] == [False, False, []]  # may be chance
    for _ in range(3):
        assert not sampling.sample()
    [sentence] = said
    assert "expected answers within 15 s, in all of a round within 60 s, found 3 rounds in a row" in sentence
    assert samples(tables) == []
    step[0] = 0
    assert sampling.sample()
    assert said[1:] == ["log ends: rounds are quick enough again."]
    step[0] = DISCARDED_AFTER_MS + 1
    assert [sampling.sample(), len(said)] == [False, 2]  # counted anew


# --- rows of answers -------------------------------------------------------------------------------------


def answered(at: int, ends: dict[tuple[str, int], int | str], **topics: TopicState) -> Round:
    return Round(sampled_at=at, topics=topics, asked=topics, ends=ends, starts={("t", 0): 5})


def of_id(topic_id: str | None) -> TopicState:
    return TopicState(topic_id=topic_id, partitions=frozenset({0, 1}))


def test_a_partition_without_an_answer_is_a_row_with_the_error() -> None:
    ends: dict[tuple[str, int], int | str] = {("t", 1): 9, ("t", 0): "REQUEST_TIMED_OUT"}
    rows = RowMaker().rows(answered(AT, ends, t=of_id("x"))).to_pylist()
    assert told(rows) == [
        ("t", None, None, None, None),
        ("t", 0, None, None, "REQUEST_TIMED_OUT"),
        ("t", 1, None, 9, None),
    ]
    assert {row["topic_id"] for row in rows} == {"x"}


def test_a_log_start_beyond_the_end_is_one_of_before() -> None:
    rows = RowMaker().rows(answered(AT, {("t", 0): 4}, t=of_id("x"))).to_pylist()
    assert told(rows)[1] == ("t", 0, None, 4, None)
    rows = RowMaker().rows(answered(AT, {("t", 0): 5}, t=of_id("x"))).to_pylist()
    assert told(rows)[1] == ("t", 0, 5, 5, None)


def test_a_topic_is_written_again_when_it_changes_and_now_and_then() -> None:
    maker = RowMaker()

    def written(at: int, state: TopicState) -> list[tuple[int, Any, Any]]:
        rows = maker.rows(answered(AT + at, {}, t=state)).to_pylist()
        maker.written()
        moments = {from_ms(AT + n): n for n in range(0, 2 * DAY_MS, MINUTE_MS)}
        return [(moments[row["sampled_at"]], row["topic_id"], row["error"]) for row in rows]

    assert written(0, of_id("x")) == [(0, "x", None)]
    assert written(MINUTE_MS, of_id("x")) == []
    assert written(TOPICS_EVERY_MS, of_id("x")) == [(TOPICS_EVERY_MS, "x", None)]
    last = TOPICS_EVERY_MS + MINUTE_MS
    assert written(last, of_id("x")) == []
    assert written(last + MINUTE_MS, of_id("y")) == [(last, "x", None), (last + MINUTE_MS, "y", None)]
    assert written(last + 2 * MINUTE_MS, TopicState(error=GONE)) == [(last + 2 * MINUTE_MS, None, GONE)]
    assert written(last + 3 * MINUTE_MS, TopicState(error=GONE)) == []
    assert written(0, TopicState(error=GONE)) == [(0, None, GONE)]  # the clock was set back


def test_what_could_not_be_written_about_a_topic_is_said_in_the_next_round() -> None:
    maker = RowMaker()

    def made(at: int, state: TopicState) -> list[tuple[int, Any, Any]]:
        rows = maker.rows(answered(AT + at, {}, t=state)).to_pylist()
        return [(to_ms(row["sampled_at"]) - AT, row["topic_id"], row["error"]) for row in rows]

    assert made(0, of_id("x")) == [(0, "x", None)]
    assert made(1, of_id("x")) == [(1, "x", None)]
    maker.written()
    assert made(2, of_id("x")) == []
    maker.written()
    for at in (3, 4):
        assert made(at, of_id("y")) == [(2, "x", None), (at, "y", None)]
    maker.written()
    assert made(5, of_id("y")) == []
    maker.written()
    for at in (6, 7):
        assert made(at, TopicState(error=GONE)) == [(5, "y", None), (at, None, GONE)]
    maker.written()
    assert made(8, TopicState(error=GONE)) == []


@pytest.mark.broker
def test_a_round_that_the_storage_refuses_loses_nothing_about_topics(
    broker: LocalBroker, tables: Tables, said: list[str]
) -> None:
    bootstrap = broker.bootstrap_servers
    kafka.create_topics(bootstrap, {"not-stored": 1})
    commit_to(tables, ("not-stored", 0))
    sampling = sampler(tables, bootstrap)
    log = Path(tables.root) / "log_ends" / "_delta_log"
    log.rename(log.with_name("away"))
    assert not sampling.sample()
    log.with_name("away").rename(log)
    assert sampling.sample()
    assert told(samples(tables)) == [
        ("not-stored", None, None, None, None),
        ("not-stored", 0, 0, 0, None),
    ]
    assert len(said) == 2


# --- the job ---------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.broker
def test_the_job_samples_beside_its_batches_and_once_at_the_end_of_a_single_run(
    make_broker: BrokerFactory, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap = make_broker(offsets_partitions=2).bootstrap_servers
    kafka.create_topics(bootstrap, {"t": 1})
    produce(bootstrap, "t", 6)
    kafka.commit_offsets(bootstrap, "g", {("t", 0): 2})
    job = RunningJob(spark, bootstrap, tmp_path, options={"log_ends.every": "300ms"})
    tables = job.run_once()
    assert ("t", 0, 0, 6, None) in told(samples(tables))
    count = len(samples(tables))
    stop = threading.Event()
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    try:
        produce(bootstrap, "t", 1)
        seven = ("t", 0, 0, 7, None)
        kafka.wait_until(lambda: seven in told(samples(tables)[count:]), "a sample of it", timeout_s=60)
        kafka.commit_offsets(bootstrap, "g", {("t", 0): 7})
        kafka.wait_until(
            lambda: tables.read().offsets["committed_offset"].to_pylist() == [7], "a batch", timeout_s=60
        )
    finally:
        stop.set()
        running.join(120)
    assert not running.is_alive()
    passed = tables.ask(lambda at: at.newest_ends(["t"], as_of=now_ms())).to_pylist()
    assert [(row["log_start"], row["log_end"]) for row in passed] == [(0, 7)]
    assert job.said == [sentence for sentence in job.said if "log ends" not in sentence]


@pytest.mark.spark
@pytest.mark.broker
def test_a_copy_of_the_topic_is_not_sampled(broker: LocalBroker, spark: SparkSession, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap_servers
    job = RunningJob(spark, bootstrap, tmp_path, topic="copied")
    kafka.create_topics(bootstrap, {"copied": 1})
    with job.reader(threading.Event()) as reader:
        assert reader.log_end_samplers(job.tables) == []
    own = RunningJob(spark, bootstrap, tmp_path)
    kafka.ensure_offsets_topic(bootstrap)
    with own.reader(threading.Event()) as reader:
        assert len(reader.log_end_samplers(own.tables)) == 1
