"""What health says of consumers that commit as the usual clients do: a table of patterns, and the status that
is expected over time. Each is judged by the function that every view uses."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pytest
from followed_tables import FollowedTables
from sampled_logs import Log
from watched_groups import World

from streaming.assessment.assess import Terms
from streaming.assessment.over_time import assess_health_changes, first_needed
from streaming.common.times import DAY_MS, HOUR_MS, MINUTE_MS
from streaming.lag.health import group_health
from streaming.lag.health_rules import HealthRules
from streaming.lag.positions import habits_by
from streaming.lag.runs import COMMITS

S, M, H, D = 1_000, MINUTE_MS, HOUR_MS, DAY_MS
START = 100 * D
"""The moment 0 of all cases."""

ANY = "any"

Commits = list[tuple[int | None, int]]


def steady(every: int = 10 * S, *, days: int = 9, until: int = 2 * D) -> Log:
    """A log with a record at regular times."""
    return Log(range(START - days * D, START + until, every))


def on(log: Log, *commits: Commits, days: int = 9, until: int = 2 * D, every: int = M) -> World:
    """A world of one position in a sampled log."""
    world = World().sampled(log, START - days * D, START + until, every=every)
    return world.committed(sorted(chain.from_iterable(commits), key=lambda one: one[1]))


def follows(log: Log, since: int, until: int, *, every: int, behind: int = 0) -> Commits:
    """Commit regularly what was read, always so many records behind; only what is new, as most clients."""
    found = Commits()
    for at in range(START + since, START + until, every):
        offset = max(0, log.end_at(at) - behind)
        if not found or found[-1][0] != offset:
            found.append((offset, at))
    return found


def runs(log: Log, starts: range | list[int], *, takes: int = 0, commits: int = 1) -> Commits:
    """Run at some times, read to the end as it was at the start, and commit on the way, the last time at the
    close."""
    found, last = Commits(), 0
    for start in starts:
        end = log.end_at(START + start)
        for number in range(1, commits + 1):
            offset = last + (end - last) * number // commits
            if offset != (found[-1][0] if found else None):
                found.append((offset, START + start + takes * number // commits))
        last = end
    return found


@dataclass(frozen=True)
class Case:
    """A pattern, and what is expected of it: from each moment (ms from `START`) on to the next one, looked at
    `looks` times in between. `ANY`: it depends on when the last sample was."""

    name: str
    world: Callable[[], World]
    expected: list[tuple[int, str]]
    until: int
    looks: int = 4
    groups: dict[str, Any] = field(default_factory=dict)
    """All the time; or, with `since`, from these moments (ms from `START`) on."""
    since: dict[int, dict[str, Any]] = field(default_factory=dict)

    def tables(self) -> FollowedTables:
        then = {START + at: groups for at, groups in self.since.items()}
        return FollowedTables(self.world(), groups_since=then or {0: self.groups})

    def moments(self) -> Iterator[tuple[int, str]]:
        stops = [*(at for at, _ in self.expected[1:]), self.until]
        for (since, status), stop in zip(self.expected, stops, strict=True):
            for look in range(self.looks * (status != ANY)):
                yield since + (stop - since) * look // self.looks, status


RISING = Log(sorted(START - D + round(n**0.5 * 600_000) for n in range(40_000)))
"""With more and more records."""
SECONDLY, TENTH = steady(S, days=2), steady()
NIGHTLY = range(-8 * D, 2 * D, D)
HOURLY = range(-8 * D, 2 * D, H)
BREAKS = {"takes": 30 * M, "commits": 60}


def with_gaps(log: Log, *gaps: tuple[int, int], days: int = 8, every: int = M) -> Commits:
    """A consumer that commits every minute, but for some times."""
    return [
        one
        for one in follows(log, -days * D, D, every=every)
        if not any(START + first < one[1] < START + last for first, last in gaps)
    ]


def sparse(*bursts: int) -> Log:
    """Two records at some times, a minute between them."""
    return Log([START + at + n * M for at in bursts for n in range(2)])


def working_hours(every: int) -> Log:
    """Records from 08:00 to 18:00 of every day."""
    return Log(
        [at for at in range(START - 9 * D, START + 2 * D, every) if 8 * H <= (at - START) % D < 18 * H]
    )


FEW = sparse(*(-7 * D + n * 9 * H for n in range(17)), 5 * M)
DAYTIME = working_hours(20 * S)


PRODUCED = range(START - 3 * H, START, 10 * S)
TRANSACTIONS = Log([at + one for at in PRODUCED for one in (0, 1)])
"""Of one record and a marker each."""
ABORTED = Log([*TRANSACTIONS.produced, *[START + 2 * S] * 4])
TWO_LATER = Log([*PRODUCED, START + 5 * M, START + 5 * M])


def members_of(name: str, *topics: str, members: list[Any] | None = None) -> dict[str, Any]:
    """A group whose member subscribes to topics, and has the first partition of each."""
    one = {"member_id": "m", "client_id": "app", "client_host": "/h", "subscribed_topics": list(topics)}
    assigned = [{"topic": topic, "partitions": [0]} for topic in topics]
    return {
        name: {
            "type": "consumer",
            "protocol_type": "consumer",
            "state": "Stable" if topics else "Empty",
            "subscribed_topics": list(topics),
            "members": [{**one, "assignment": assigned}] if members is None else members,
        }
    }


def with_other(world: World) -> World:
    """Add a topic of whose log the group keeps up with the end."""
    log = Log(SECONDLY.produced, topic="other")
    world.sampled(log, START - D, START + 3 * H)
    return world.committed(follows(log, -3 * H, 3 * H, every=30 * S), ("g", "other", 0))


CASES = [
    # --- clients that go on ---------------------------------------------------------------------------
    Case(
        "a consumer of librdkafka commits every 5 s what it read, then dies",
        lambda: on(SECONDLY, follows(SECONDLY, -H, 0, every=5 * S), days=1),
        [(-30 * M, "OK"), (12 * M, "STOPPED")],
        3 * H,
    ),
    Case(
        "Kafka Connect commits every 60 s",
        lambda: on(SECONDLY, follows(SECONDLY, -3 * H, 0, every=60 * S), days=1),
        [(-H, "OK"), (13 * M, "STOPPED")],
        3 * H,
    ),
    Case(
        "Kafka Streams commits every 30 s, a few seconds behind",
        lambda: on(SECONDLY, follows(SECONDLY, -3 * H, H, every=30 * S, behind=5), days=1),
        [(-H, "OK")],
        H,
    ),
    Case(
        "Flink commits with a checkpoint every 10 min; one fails",
        lambda: on(
            SECONDLY,
            follows(SECONDLY, -6 * H, -10 * M, every=10 * M),
            follows(SECONDLY, 0, 3 * H, every=10 * M),
            days=1,
        ),
        [(-2 * H, "OK")],
        2 * H,
        40,
    ),
    Case(
        "Flink commits with a checkpoint every 10 min; then no more",
        lambda: on(SECONDLY, follows(SECONDLY, -6 * H, 1, every=10 * M), days=1),
        [(0, "OK"), (25 * M, "STOPPED")],
        3 * H,
    ),
    Case(
        "a listener of Spring commits each batch; few records come, then one that it does not take",
        lambda: on(
            sparse(*range(-20 * H, 1, 2 * H)),
            runs(sparse(*range(-20 * H, -1, 2 * H)), range(-20 * H + 65 * S, -1, 2 * H)),
            days=1,
        ),
        [(-3 * H, "OK"), (6 * M, "OK"), (4 * H + 20 * M, "STOPPED")],
        8 * H,
    ),
    Case(
        "147 commits close together, 9 minutes behind and more with each",
        lambda: on(
            SECONDLY,
            [(SECONDLY.end_at(START) - 9 * M // S + n // 8, START + n * S // 2) for n in range(147)],
            days=1,
            every=10 * S,
        ),
        [(30 * S, "UNKNOWN"), (M, ANY), (2 * M + 5 * S, "WARNING")],
        9 * M,
    ),
    # --- batch jobs ---------------------------------------------------------------------------------------
    Case(
        "a nightly batch of half an hour, with a commit every 30 s",
        lambda: on(TENTH, runs(TENTH, NIGHTLY, **BREAKS)),
        [(0, "OK")],
        26 * H,
        30,
    ),
    Case(
        "a nightly batch that does not come",
        lambda: on(TENTH, runs(TENTH, range(-8 * D, 1, D), **BREAKS)),
        [(0, "OK"), (31 * H, "STOPPED")],
        40 * H,
    ),
    Case(
        "a nightly batch whose first runs are kept: two pauses are no habit",
        lambda: on(TENTH, runs(TENTH, range(-2 * D, D, D), **BREAKS)),
        [(45 * M, "STOPPED")],
        23 * H,
    ),
    Case(
        "a nightly batch that is one day old",
        lambda: on(TENTH, runs(TENTH, [-D, 0], **BREAKS)),
        [(45 * M, "STOPPED")],
        23 * H,
    ),
    Case(
        "a run of 6 min with 12 commits, every 40 min",
        lambda: on(TENTH, runs(TENTH, range(-2 * D, D, 40 * M), takes=6 * M, commits=12)),
        [(0, "OK")],
        2 * H,
        60,
    ),
    Case(
        "an hourly batch of 6 min with 12 commits that is five hours old, then no more",
        lambda: on(TENTH, runs(TENTH, range(-5 * H, 1, H), takes=6 * M, commits=12)),
        [(0, "OK"), (70 * M, ANY), (80 * M, "STOPPED")],
        5 * H,
        10,
    ),
    Case(
        "an hourly batch, one commit at its close",
        lambda: on(TENTH, runs(TENTH, HOURLY, takes=2 * M)),
        [(0, "OK")],
        2 * H,
        20,
    ),
    Case(
        "a daily job, one commit at its close, that starts up to 10 min early or late",
        lambda: on(
            TENTH, runs(TENTH, [day * D + j * M for day, j in zip(range(-7, 2), JITTER, strict=True)])
        ),
        [(0, "OK")],
        25 * H,
        80,
    ),
    Case(
        "an hourly batch that commits when there was something, of a topic with records every few hours",
        lambda: on(FEW, runs(FEW, HOURLY)),
        [(0, "OK")],
        H,
        20,
    ),
    Case(
        "the same with a history of two pauses",
        lambda: on(
            sparse(-20 * H, -17 * H, -14 * H, 5 * M), runs(sparse(-20 * H, -17 * H, -14 * H, 5 * M), HOURLY)
        ),
        [(0, "OK")],
        H,
        20,
    ),
    Case(
        "a nightly run that reads, computes for 25 min, and reads on, four times",
        lambda: on(
            TENTH,
            runs(
                TENTH,
                sorted(chain.from_iterable((d, d + 28 * M, d + 56 * M, d + 84 * M) for d in NIGHTLY)),
                takes=3 * M,
                commits=6,
            ),
        ),
        [(0, "OK")],
        26 * H,
        40,
    ),
    Case(
        "a consumer that is switched off from 22:00 to 06:00",
        lambda: on(TENTH, with_gaps(TENTH, *((day * D - 2 * H, day * D + 6 * H) for day in range(-7, 2)))),
        [(-3 * H, "OK")],
        8 * H,
        20,
    ),
    Case(
        "a job that takes a quarter of an hour, every half hour, of more and more records",
        lambda: on(RISING, runs(RISING, range(-8 * H, D, 30 * M), takes=15 * M), days=1),
        [(0, "OK")],
        H,
        20,
    ),
    Case(
        "a job of every 20 min that takes half of what comes",
        lambda: on(
            SECONDLY, [((at + 2 * D) // (2 * S), START + at) for at in range(-5 * H, D, 20 * M)], days=1
        ),
        [(0, "WARNING")],
        H,
        20,
    ),
    # --- with members -----------------------------------------------------------------------------------
    Case(
        "a reader of transactions that commits by hand, before the marker of the last one",
        lambda: on(TRANSACTIONS, [(TRANSACTIONS.end_at(at), at + 200) for at in PRODUCED]),
        [(-2 * H, "OK")],
        30 * H,
        groups=members_of("g", "t"),
    ),
    Case(
        "the same, and what three aborted records and their marker left",
        lambda: on(ABORTED, [(ABORTED.end_at(at), at + 200) for at in PRODUCED]),
        [(-2 * H, "OK"), (5 * M, ANY), (30 * M, "UNKNOWN")],
        30 * H,
        groups=members_of("g", "t"),
    ),
    Case(
        "the same, when its members are gone",
        lambda: on(ABORTED, [(ABORTED.end_at(at), at + 200) for at in PRODUCED]),
        [(-2 * H, "OK"), (5 * M, ANY), (30 * M, "STOPPED")],
        30 * H,
    ),
    Case(
        "two records wait for a consumer that is there, and hangs",
        lambda: on(TWO_LATER, follows(TWO_LATER, -3 * H, 0, every=10 * S)),
        [(-2 * H, "OK"), (30 * M, "STOPPED")],
        30 * H,
        groups=members_of("g", "t"),
    ),
    Case(
        "records come to a topic that the group does not subscribe to any more",
        lambda: with_other(on(SECONDLY, follows(SECONDLY, -3 * H, 0, every=30 * S), days=1)),
        [(-H, "OK")],
        3 * H,
        groups=members_of("g", "other"),
    ),
    Case(
        "it subscribes to another one when records have waited for half an hour",
        lambda: with_other(on(SECONDLY, follows(SECONDLY, -3 * H, 0, every=30 * S), days=1)),
        [(-H, "OK"), (12 * M, "STOPPED"), (30 * M, "OK")],
        3 * H,
        since={-2 * H: members_of("g", "t", "other"), 30 * M: members_of("g", "other")},
    ),
    Case(
        "what aborted records left, and its members leave after an hour",
        lambda: on(ABORTED, [(ABORTED.end_at(at), at + 200) for at in PRODUCED]),
        [(-2 * H, "OK"), (5 * M, ANY), (30 * M, "UNKNOWN"), (H, "STOPPED")],
        3 * H,
        since={-3 * H: members_of("g", "t"), H: members_of("g", members=[])},
    ),
    Case(
        "a consumer that is stuck on its first poll, until its member leaves",
        lambda: World().sampled(SECONDLY, START - H, START + 3 * H),
        [(0, "UNKNOWN"), (10 * M, ANY), (11 * M, "STOPPED")],
        2 * H,
        since={0: members_of("g", "t"), 2 * H: members_of("g", members=[])},
    ),
    Case(
        "one that begins at the end of a log to which nothing comes",
        lambda: World().sampled(sparse(-H), START - 2 * H, START + 3 * H),
        [(0, "UNKNOWN"), (10 * M, "WARNING")],
        2 * H,
        since={0: members_of("g", "t")},
    ),
    Case(
        "one that is stuck on its first poll, and is thrown out of its group every 3 min",
        lambda: World().sampled(SECONDLY, START - H, START + 3 * H),
        [(0, "UNKNOWN"), (11 * M, ANY), (24 * M, "STOPPED")],
        2 * H,
        since={at: members_of("g", "t") for at in range(0, 2 * H, 3 * M)},
    ),
    Case(
        "one that is stuck on its first poll, and then commits",
        lambda: on(SECONDLY, follows(SECONDLY, H, 2 * H, every=30 * S), days=1),
        [(0, "UNKNOWN"), (10 * M, ANY), (11 * M, "STOPPED"), (H, ANY), (62 * M, "OK")],
        2 * H,
        since={0: members_of("g", "t")},
    ),
    Case(
        "a partition of two is committed, of the other nothing",
        lambda: with_other(World().sampled(SECONDLY, START - 3 * H, START + 3 * H)),
        [(0, "UNKNOWN"), (10 * M, ANY), (11 * M, "STOPPED")],
        2 * H,
        since={0: members_of("g", "t", "other")},
    ),
    Case(
        "they come to one that it subscribed to, and it has no members",
        lambda: on(SECONDLY, follows(SECONDLY, -3 * H, 0, every=30 * S), days=1),
        [(-H, "OK"), (12 * M, "STOPPED")],
        3 * H,
        groups=members_of("g", members=[]),
    ),
    # --- outages ------------------------------------------------------------------------------------------
    Case(
        "the first outage of a consumer that goes on",
        lambda: on(TENTH, with_gaps(TENTH, (0, 3 * H))),
        [(-H, "OK"), (16 * M, "STOPPED"), (3 * H + M, "OK")],
        4 * H,
    ),
    Case(
        "a second outage of the same length",
        lambda: on(TENTH, with_gaps(TENTH, (-D, -D + 3 * H), (0, 3 * H))),
        [(-H, "OK"), (16 * M, "STOPPED"), (3 * H + M, "OK")],
        4 * H,
    ),
    Case(
        "the fifth outage of the same length within a week",
        lambda: on(TENTH, with_gaps(TENTH, *((-n * D, -n * D + 3 * H) for n in range(5)))),
        [(-H, "OK"), (16 * M, "STOPPED"), (3 * H + M, "OK")],
        4 * H,
    ),
    Case(
        "an outage in working hours, of a topic in which nothing comes at night",
        lambda: on(DAYTIME, with_gaps(DAYTIME, (9 * H, 13 * H))),
        [(8 * H, "OK"), (9 * H + 16 * M, "STOPPED"), (13 * H + M, "OK")],
        17 * H,
    ),
    Case(
        "an hourly batch that had an outage of 5 h, and has another",
        lambda: on(
            TENTH,
            runs(TENTH, [at for at in HOURLY if not (-D < at < -D + 5 * H or 0 < at < 5 * H)], **BREAKS),
        ),
        [(0, "OK"), (65 * M, ANY), (75 * M, "STOPPED")],
        5 * H,
    ),
]
JITTER = (0, 7, -9, 4, 10, -10, 5, 9, -4)


@pytest.mark.parametrize(
    "case",
    [case if case in CASES[::4] else pytest.param(case, marks=pytest.mark.more) for case in CASES],
    ids=lambda case: case.name,
)
def test_status_over_time(case: Case) -> None:
    """Looked at every other moment: the next test looks at all of them, in one go."""
    tables = case.tables()
    found = [
        (at / M, expected, row["status"], row["reason"])
        for at, expected in list(case.moments())[::2]
        for row in group_health(tables.assessed(START + at)).to_pylist()
    ]
    assert [one for one in found if one[1] != one[2]] == []
    assert len(found) >= case.looks // 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_past_has_the_same_status_over_time(case: Case) -> None:
    """As `health --since` has it, which judges all moments at once."""
    looked = list(case.moments())
    changes = changes_of(case.tables(), [START + at for at, _ in looked], HealthRules())
    found = [[*(status for since, status, _ in changes if since <= at / M), None][-2] for at, _ in looked]
    assert found == [expected for _, expected in looked]


ONE_LATER = Log([*PRODUCED, START + 5 * M])
BURST = Log([*PRODUCED, *[START - 2 * S] * 500])


@pytest.mark.parametrize(
    ("log", "members", "expected"),
    [
        (TRANSACTIONS, True, "may be markers"),
        (TRANSACTIONS, False, None),  # who has stopped may have left a record
        (ABORTED, True, "may be markers"),
        (ONE_LATER, True, None),  # one record waits, which came long after the last commit
        (ONE_LATER, False, None),
        (BURST, True, None),  # so many are no markers
    ],
)
def test_lag_time_is_not_given_where_there_may_be_nothing_but_markers(
    log: Log, members: bool, expected: str | None
) -> None:
    world = on(log, [(log.end_at(at), at + 200) for at in PRODUCED[:-1]], every=10 * S)
    world.committed([(log.end_at(PRODUCED[-1]), PRODUCED[-1] + 200)])
    tables = FollowedTables(world, groups_since={0: members_of("g", "t") if members else {}})
    [row] = tables.judged(START + 5 * H)
    assert row["lag"] > 0
    assert row["lag_seconds_reason"] == expected
    assert (row["lag_seconds"] is None) == (expected is not None)
    assert (row["status"] == "STOPPED") == (expected is None and row["lag"] > 1)


def test_a_topic_that_is_not_subscribed_to_does_not_decide() -> None:
    world = on(SECONDLY, follows(SECONDLY, -3 * H, 0, every=30 * S), days=1)
    other = Log(SECONDLY.produced, topic="other")
    world.sampled(other, START - D, START + 2 * H)
    world.committed([(100, at) for at in range(START - H, START + H, 30 * S)], ("g", "other", 0))
    tables = FollowedTables(world, groups_since={0: members_of("g", "other")})
    rows = {row["topic"]: row["status"] for row in tables.judged(START + H)}
    assert rows == {"t": "OK", "other": "STALLED"}
    [group] = group_health(tables.assessed(START + H)).to_pylist()
    assert (group["status"], group["topic"], group["partitions_not_ok"]) == ("STALLED", "other", 1)


STEADY_MOMENTS = range(START - 20 * M, START, 131 * S + 300)


@pytest.mark.parametrize("sampled_every", [10 * S, pytest.param(M, marks=pytest.mark.more)])
@pytest.mark.parametrize("commits_every", [5 * S, pytest.param(10_050, marks=pytest.mark.more), 30 * S])
@pytest.mark.parametrize("behind", [2, pytest.param(10, marks=pytest.mark.more), 30, 2 * H // S])
def test_a_group_that_keeps_its_distance_is_well_and_never_caught_up(
    behind: int, commits_every: int, sampled_every: int
) -> None:
    """Commits drift along the samples: the lag by the samples after them rises slowly, and falls at once."""
    log = Log(range(START - 4 * H, START + M, S))
    world = World().sampled(log, START - 4 * H, START, every=sampled_every)
    world.committed(follows(log, -H, 0, every=commits_every, behind=behind))
    tables = FollowedTables(world)
    found = {(row["status"], row["reason"]) for now in STEADY_MOMENTS for row in tables.judged(now)}
    assert found <= {("OK", "catching up"), ("OK", "keeps pace")}


@pytest.mark.parametrize("sampled_every", [10 * S, pytest.param(M, marks=pytest.mark.more)])
@pytest.mark.parametrize(("new_id", "expected"), [("new", False), ("old", True), (None, True)])
def test_a_topic_that_was_recreated_is_no_rewind(
    new_id: str | None, expected: bool, sampled_every: int
) -> None:
    """Its group goes on from the first record of the new one. Without ids it went back."""
    old = Log(range(START - 3 * H, START, S), topic_id="old")
    new = Log(range(START, START + H, S), topic_id=new_id)
    world = World().sampled(old, START - 3 * H, START - S, every=sampled_every)
    world.sampled(new, START + S, START + H, every=sampled_every)
    world.committed(follows(old, -2 * H, 0, every=5 * S, behind=20))
    world.committed(follows(new, 20 * S, H, every=5 * S, behind=60))
    tables, moments = FollowedTables(world), range(START - 2 * M, START + 20 * M, 61 * S)
    found = {row["status"] for now in moments for row in tables.judged(now)}
    assert ("REWOUND" in found) == expected
    changes = changes_of(tables, moments, HealthRules())
    assert ("REWOUND" in {status for _, status, _ in changes}) == expected


def changes_of(
    tables: FollowedTables, moments: Sequence[int], rules: HealthRules
) -> list[tuple[float, str, str]]:
    """Return how the status changed, as `health --since` has it."""
    tables.now = moments[-1]
    commits = tables.commits(None, since=first_needed(moments[0], rules)).select(COMMITS.names)
    found, _ = assess_health_changes(
        tables, commits, None, moments=np.array(moments), terms=Terms(rules=rules)
    )
    return [
        ((row["at"].timestamp() * S - START) / M, row["status"], row["reason"]) for row in found.to_pylist()
    ]


@pytest.mark.parametrize(
    "name",
    [
        "an hourly batch of 6 min with 12 commits that is five hours old, then no more",
        "it subscribes to another one when records have waited for half an hour",
        "what aborted records left, and its members leave after an hour",
        "a consumer that is stuck on its first poll, until its member leaves",
        "one that is stuck on its first poll, and is thrown out of its group every 3 min",
        *(
            pytest.param(name, marks=pytest.mark.more)
            for name in (
                "a nightly batch of half an hour, with a commit every 30 s",
                "a nightly batch that is one day old",
                "a second outage of the same length",
                "an outage in working hours, of a topic in which nothing comes at night",
            )
        ),
    ],
)
def test_the_past_is_judged_as_the_present_was(name: str) -> None:
    (case,) = (case for case in CASES if case.name == name)
    tables = case.tables()
    moments = range(START + case.expected[0][0], START + case.until, 13 * M)
    held, expected = None, []
    for now in moments:
        (row,) = group_health(tables.assessed(now)).to_pylist()
        if row["status"] != held:
            held = row["status"]
            expected.append(((now - START) / M, held, row["reason"]))
    assert changes_of(tables, moments, HealthRules()) == expected


def test_the_history_of_a_position_is_read_once_for_each_last_commit() -> None:
    world = on(TENTH, runs(TENTH, NIGHTLY, **BREAKS))
    world.committed(follows(TENTH, -H, 2 * D, every=M), ("alive", "t", 0))
    tables, other = FollowedTables(world), FollowedTables(world)
    habits = habits_by(HealthRules())
    for minute in range(45, 600, 15):
        kept = other.judged(START + minute * M, habits=habits)
        assert kept == tables.judged(START + minute * M)
    assert other.asked_for_pauses == [["g"]]
    assert len(tables.asked_for_pauses) > 30
    other.judged(START + D + 50 * M, habits=habits)
    assert len(other.asked_for_pauses) == 2
    other.judged(START + D + 5 * M, habits=habits)  # nothing has stopped
    assert other.asked_for_pauses == [["g"], ["g"]]
