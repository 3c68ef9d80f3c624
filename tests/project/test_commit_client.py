"""The client that commits by the thousand: its requests are the declared ones, and each answer is its own."""

from collections import defaultdict
from collections.abc import Iterator

import kafka_clients as kafka
import pytest
from commit_client import Commit, Committer, Traffic, check_answer
from raw_requests import RequestError, _OffsetCommitAnswerV6, offset_commit_request, offset_fetch

from streaming.demo.broker_offsets import CommittedOffset
from streaming.demo.local_broker import LocalBroker


def test_a_packed_request_is_the_one_that_is_declared() -> None:
    declared = offset_commit_request(
        "grüppe", {("events", 3): CommittedOffset(2**40), ("events", 5): CommittedOffset(7)}
    )
    assert Commit("grüppe", "events", (3, 5), (2**40, 7)).request() == declared


def test_the_expected_answer_is_the_one_that_is_declared() -> None:
    topics = [{"name": "events", "partitions": [{"index": index, "error": 0} for index in (3, 5)]}]
    declared = _OffsetCommitAnswerV6.build({"throttle_ms": 0, "topics": topics})
    assert Commit("g", "events", (3, 5), (1, 1)).answer() == (1).to_bytes(4) + declared


def test_an_error_in_an_answer_is_found_in_whichever_partition_it_is() -> None:
    commit = Commit("g", "events", (3, 5), (1, 1))
    good = commit.answer()
    check_answer(good, good)
    for place in (len(good) - 2, len(good) - 2 - 6):
        bad = good[:place] + (16).to_bytes(2) + good[place + 2 :]
        with pytest.raises(RequestError, match="NOT_COORDINATOR"):
            check_answer(bad, good)


def test_an_answer_may_have_its_partitions_in_any_order_but_no_others() -> None:
    """Brokers before 4.0 do not keep the order of the request."""
    good = Commit("g", "events", (3, 5), (1, 1)).answer()
    check_answer(Commit("g", "events", (5, 3), (1, 1)).answer(), good)
    for other in (Commit("g", "events", (3, 4), (1, 1)), Commit("g", "others", (5, 3), (1, 1))):
        with pytest.raises(AssertionError, match="expected the answer"):
            check_answer(other.answer(), good)


@pytest.mark.more
@pytest.mark.broker
def test_every_commit_is_reported_once_and_those_of_a_group_in_their_order(broker: LocalBroker) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"commit-client": 2})
    groups = [f"commit-client-{number}" for number in range(40)]
    for group in groups:
        kafka.alter_offsets(broker.bootstrap_servers, group, {("commit-client", 0): 0})  # coordinators are up
    told: dict[str, list[int]] = defaultdict(list)
    with Committer(
        broker.bootstrap_servers, lambda commit, _: told[commit.group].append(commit.offsets[0])
    ) as committer:
        committer.commit_all(
            Commit(group, "commit-client", (0, 1), (offset, offset))
            for offset in range(5)
            for group in groups
        )
    assert committer.answered == 200
    assert told == {group: [0, 1, 2, 3, 4] for group in groups}
    assert offset_fetch(broker.bootstrap_servers, groups[7]) == {
        ("commit-client", 0): CommittedOffset(4),
        ("commit-client", 1): CommittedOffset(4),
    }


class OneAfterTheOther:
    """A plan: ten commits a second of one group."""

    def between(self, start: float, stop: float) -> Iterator[Commit]:
        for offset in range(int(10 * start), int(10 * stop)):
            yield Commit("commit-client-traffic", "commit-client-traffic", (0,), (offset,))


@pytest.mark.more
@pytest.mark.broker
def test_traffic_follows_its_plan_and_waits_for_the_last_answers(broker: LocalBroker) -> None:
    kafka.create_topics(broker.bootstrap_servers, {"commit-client-traffic": 1})
    kafka.alter_offsets(broker.bootstrap_servers, "commit-client-traffic", {("commit-client-traffic", 0): 0})
    told: list[int] = []
    with Traffic(
        broker.bootstrap_servers,
        OneAfterTheOther(),
        answered=lambda commit, _: told.append(commit.offsets[0]),
        tick_s=0.01,
    ) as traffic:
        kafka.wait_until(lambda: len(told) >= 5, "five commits")
    assert told == list(range(traffic.requests))


@pytest.mark.more
@pytest.mark.broker
def test_traffic_that_fails_says_so_at_the_end(broker: LocalBroker) -> None:
    class Wrong:
        def between(self, start: float, stop: float) -> Iterator[Commit]:
            yield Commit("commit-client-wrong", "a topic that is not there", (0,), (0,))

    with pytest.raises(AssertionError, match="traffic failed") as raised:  # noqa: SIM117
        with Traffic(broker.bootstrap_servers, Wrong(), tick_s=0.01) as traffic:
            kafka.wait_until(lambda: traffic.failure is not None, "the failure")
    assert isinstance(raised.value.__cause__, RequestError)
