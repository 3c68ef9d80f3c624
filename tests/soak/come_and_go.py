"""Groups that come and go, each expired by the broker itself, beside steady ones: does anything grow?"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import flexible_requests
from commit_client import Traffic
from history_checks import table_offsets

from streaming.demo.broker_offsets import CommittedOffset, OffsetKey
from tests.soak.running import Running, running
from tests.soak.state import check_state
from tests.soak.traffic import AGAIN_AFTER_S, ShortLived
from tests.soak.watch import Sample

EXPIRY: Final = {
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": 5_000,
    "offsets.topic.segment.bytes": 4 * 2**20,
    "log.cleaner.backoff.ms": 5_000,
    "log.cleaner.dedupe.buffer.size": 32 * 2**20,
}
"""Of the broker: offsets go a minute after their commit, and the log cleaner has something to do."""

GONE_AFTER_S: Final = AGAIN_AFTER_S + 60 + 5
COLLECTION_EVERY: Final = 20  # samples

_LIMIT_S: Final = 300.0
_GROUPS_A_REQUEST: Final = 500

Say = Callable[[str], None]


def soak(
    directory: Path, plan: ShortLived, *, every_s: float, say: Say, tell: Callable[[list[Sample]], None]
) -> None:
    """Let all groups come and go, tell what was seen meanwhile, and check what is left."""
    with running(directory, plan, EXPIRY) as run:
        with Traffic(run.bootstrap, plan) as traffic:
            samples = watch(run, plan, traffic, every_s, say)
        run.wait_until_read()
        left = check_tables(run, plan)
        share = traffic.processor_s / traffic.seconds
        say(f"{traffic.requests:,} requests sent, for {100 * share:.1f} % of a core")
        tell(samples)
        say(left)
        run.stop()
        say(check_state(run.job))


def watch(run: Running, plan: ShortLived, traffic: Traffic, every_s: float, say: Say) -> list[Sample]:
    """Take samples until the last short-lived group is gone, for the broker and in the tables."""
    samples: list[Sample] = []
    while True:
        traffic.check()
        run.job.check()
        if len(samples) % COLLECTION_EVERY == 0:
            run.watch.collect_garbage()
        sample = run.watch.sample(
            seconds=traffic.seconds,
            groups_seen=plan.come_by(traffic.seconds),
            broker_groups=flexible_requests.count_groups(run.bootstrap),
        )
        samples.append(sample)
        say(in_one_line(sample))
        over = sample.seconds - plan.seconds - GONE_AFTER_S
        if over > 0 and sample.broker_groups == sample.live_groups == plan.steady:
            return samples
        assert over < _LIMIT_S, "groups that should be gone are still there"
        time.sleep(max(0.0, every_s - traffic.seconds % every_s))


def in_one_line(sample: Sample) -> str:
    """Say what is going on."""
    return (
        f"{sample.seconds:5.0f} s: {sample.groups_seen:9,} groups; live {sample.broker_groups:,} at the "
        f"broker, {sample.live_groups:,} in the tables; a batch {sample.batch_records:,.0f} records, "
        f"{sample.batch_seconds:.1f} s; MB: JVM {sample.jvm_rss_bytes / 1e6:,.0f}, "
        f"heap {sample.heap_bytes / 1e6:.0f}, driver {sample.driver_rss_bytes / 1e6:.0f}, "
        f"workers {sample.workers_rss_bytes / 1e6:.0f}, state {sample.state_bytes / 1e6:.1f}"
    )


def check_tables(run: Running, plan: ShortLived) -> str:
    """Compare the tables with what the broker answers, before the steady groups expire as well."""
    names, expected = plan.steady_names, {}
    for start in range(0, len(names), _GROUPS_A_REQUEST):
        wanted = dict.fromkeys(names[start : start + _GROUPS_A_REQUEST])
        for group in flexible_requests.offset_fetch(run.bootstrap, wanted):
            for topic in group.topics:
                for found in topic.partitions:
                    key = OffsetKey(group.group, topic.name, found.index)
                    epoch = None if found.leader_epoch < 0 else found.leader_epoch
                    expected[key] = CommittedOffset(found.offset, epoch, found.metadata)
    assert len(expected) == plan.steady * plan.steady_partitions, "the broker has dropped steady offsets"
    assert table_offsets(run.job.tables) == expected
    assert sorted(run.job.tables.read().groups["group"].to_pylist()) == names
    return f"the tables equal the broker's answers: {len(expected):,} offsets of {len(names):,} groups"
