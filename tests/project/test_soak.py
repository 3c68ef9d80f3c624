"""The soak's parts that need no broker: who commits when, how samples are judged."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

from job_process import JobProcess

from tests.soak import report, writes
from tests.soak.traffic import RandomKeys, ShortLived
from tests.soak.watch import COLUMNS, Sample, Watch


def test_every_short_lived_group_comes_once_and_every_other_one_once_more() -> None:
    plan = ShortLived(groups=100, seconds=10, steady=0)
    commits = [commit for number in range(300) for commit in plan.between(number / 10, (number + 1) / 10)]
    assert Counter(commit.group for commit in commits if set(commit.offsets) == {100}) == {
        f"short-{number:08}": 1 for number in range(100)
    }
    again = [commit.group for commit in commits if set(commit.offsets) == {200}]
    assert again == [f"short-{number:08}" for number in range(1, 100, 2)]
    assert {len(commit.partitions) for commit in commits} == {1, 2, 3}


def test_a_steady_group_commits_all_its_partitions_in_every_period() -> None:
    plan = ShortLived(groups=1, seconds=1_000, steady=4, steady_partitions=5, period_s=2)
    commits = [commit for commit in plan.between(0, 4) if commit.group.startswith("steady")]
    assert Counter(commit.group for commit in commits) == dict.fromkeys(plan.steady_names, 2)
    assert {tuple(commit.partitions) for commit in commits} == {(0, 1, 2, 3, 4)}
    assert [commit.offsets for commit in commits] == [[1] * 5] * 4 + [[2] * 5] * 4


def test_random_keys_are_those_that_were_drawn_however_the_time_is_cut() -> None:
    plan = RandomKeys(keys=200, rate=50, seconds=4)
    cuts = [0, 0.33, 1.01, 2.5, 4]
    commits = [commit for start, stop in pairwise(cuts) for commit in plan.between(start, stop)]
    keys = [50 * int(commit.group.removeprefix("group-")) + commit.partitions[0] for commit in commits]
    assert keys == plan.drawn.tolist()
    newest = plan.offsets_at_first.copy()
    for key, commit in zip(keys, commits, strict=True):
        [newest[key]] = commit.offsets
    assert newest.tolist() == plan.offsets_after(len(commits)).tolist()
    assert newest.tolist() != plan.offsets_after(len(commits) - 1).tolist()


def a_sample(seconds: float, **values: float) -> Sample:
    return Sample(**{**dict.fromkeys(COLUMNS, 0), "seconds": seconds, **values})  # type: ignore[arg-type]


def test_the_trend_is_that_of_the_quarters() -> None:
    samples = [a_sample(at, live_groups=100 if at < 50 else 150, heap_bytes=math.nan) for at in range(101)]
    lines = {
        line.split(" | ")[0].strip("| "): line for line in report.table(samples, report.ROWS).splitlines()
    }
    assert lines["live groups, tables"] == "| live groups, tables | 100 | 150 | 150 | +50 % |"
    assert lines["heap in use after a full collection, MB"].endswith("|  -  |  -  |  -  | - |")


def test_the_plot_is_small_and_always_the_same(tmp_path: Path) -> None:
    samples = [a_sample(5 * at, jvm_rss_bytes=1e9 + at, batch_seconds=at % 7) for at in range(1_000)]
    report.plot(tmp_path / "a.svg", samples, report.PANELS)
    report.plot(tmp_path / "b.svg", samples, report.PANELS)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.svg").stat().st_size < 100_000


def test_a_file_counts_once_however_often_it_is_linked_and_not_before_it_has_its_name(tmp_path: Path) -> None:
    job = JobProcess(tmp_path, "localhost:9092")
    watch = Watch(job)
    before = set(watch.files())
    (tmp_path / "1.sst").write_bytes(b"12345")
    (tmp_path / ".2.changelog.tmp").write_bytes(b"123")
    watch.files()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "1.sst").hardlink_to(tmp_path / "1.sst")
    (tmp_path / "1.sst").unlink()
    (tmp_path / ".2.changelog.tmp").rename(tmp_path / "2.changelog")
    assert {path: size for path, size in watch.files().items() if path not in before} == {
        "1.sst": 5,
        "2.changelog": 3,
    }
    assert {path: watch.appeared[path] for path in watch.appeared.keys() - before} == {
        "1.sst": 5,
        "2.changelog": 3,
    }


def test_files_are_counted_where_they_appear() -> None:
    before = {"tables/changes/a.parquet": 10}
    after = before | {
        "tables/changes/b.parquet": 5,
        "tables/changes/_delta_log/1.json": 3,
        "checkpoint/0/state/0/1/2.changelog": 7,
        "checkpoint/0/state/0/1/2.zip": 8,
        "checkpoint/0/offsets/2": 1,
        "scratch/blockmgr-1/x": 2,
    }
    made = {place: size for place, size in writes.by_place(before, after).items() if size}
    assert made == {
        "`changes`": 5,
        "`changes`, its log": 3,
        "state: changelog": 7,
        "state: snapshots": 8,
        "checkpoint without state": 1,
        "scratch: shuffles and other": 2,
    }
