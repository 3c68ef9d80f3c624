"""The soak's parts that need no broker: who commits when, how samples are judged."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from job_process import JobProcess

from streaming.common.times import iso
from tests.soak import clients_seen, report, writes
from tests.soak.answers import Ask, DifferenceError, Judge, Named, Reply
from tests.soak.numbered import FIRST_END, Numbered
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
    assert lines["Java heap in use after a full garbage collection, MB"].endswith("|  -  |  -  |  -  | - |")


@pytest.mark.more
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


# --- answers that name their snapshot ---------------------------------------------------------------------

NUMBERED = Numbered(groups=400)  # each batch commits for 100 of them: those of the same number modulo 4


def a_judge() -> Judge:
    judge = Judge(NUMBERED)
    for batch in range(30, 41):
        judge.note(batch, 1_000 * batch)
    return judge


def check(ask: str, values: str, *, before: int = 36, now: int = 38, sees_all: bool = True) -> Named:
    """Judge an answer between two batches that a client has named."""
    kind, *names = ask.split()
    reply = Reply.read([iso(1_000 * now), iso(1_000 * now), *values.split()])
    return a_judge().check(Ask(kind, names), reply, Named(before, before), sees_all=sees_all)


GOOD = [
    ("offsets a-00000 b-00005", "a-00000=50:36:36 b-00005=50:37:37"),  # of batch 37
    ("offsets a-00000", "a-00000=50:36:36"),
    ("offsets new-38 new-17", "new-38=0:0:0 new-17=0:0:0"),  # of batch 37
    ("members a-00002", "a-00002=1:38:38"),
    ("ends t0 t1", f"t0=10:{FIRST_END + 37}:{FIRST_END + 37} t1=10:{FIRST_END + 37}:{FIRST_END + 37}"),
    ("groups", "groups=400:0:0 new=20:18:37"),
]
BAD = {
    "of two batches": ("offsets a-00002 b-00005", "a-00002=50:38:38 b-00005=50:33:33"),
    "of two batches, within a group": ("offsets a-00000", "a-00000=50:32:36"),
    "incomplete": ("offsets a-00000", "a-00000=49:36:36"),
    "older than named before": ("offsets a-00000", "a-00000=50:32:32"),
    "newer than named": ("offsets a-00003", "a-00003=50:39:39"),
    "of another group": ("offsets a-00003", "a-00003=50:36:36"),
    "not there any more": ("offsets new-38 new-18", "new-38=0:0:0 new-18=0:0:0"),
    "there too early": ("offsets new-40", "new-40=50:40:40"),
    "about something else": ("offsets a-00000", "a-00001=50:37:37"),
    "without rights": ("offsets a-00000", "a-00000=denied"),
    "of an old member": ("members a-00002", "a-00002=1:30:30"),
    "of two samples": (
        "ends t0 t1",
        f"t0=10:{FIRST_END + 36}:{FIRST_END + 36} t1=10:{FIRST_END + 37}:{FIRST_END + 37}",
    ),
    "a list that lacks a group": ("groups", "groups=399:0:0 new=20:18:37"),
    "a list of two batches": ("groups", "groups=400:0:0 new=21:17:37"),
}


@pytest.mark.parametrize(("ask", "values"), GOOD)
def test_an_answer_of_a_batch_between_those_named_is_good(ask: str, values: str) -> None:
    assert check(ask, values) == Named(38, 38)


@pytest.mark.parametrize("what", BAD)
def test_an_answer_that_is_not_of_its_snapshot_differs(what: str) -> None:
    with pytest.raises(DifferenceError):
        check(*BAD[what])


def test_hidden_groups_are_denied_and_left_out() -> None:
    check("offsets b-00005", "b-00005=denied", sees_all=False)
    check("groups", "groups=200:0:0 new=20:18:37", sees_all=False)
    for ask, values in (
        ("offsets b-00005", "b-00005=50:37:37"),
        ("groups", "groups=400:0:0 new=20:18:37"),
    ):
        with pytest.raises(DifferenceError):
            check(ask, values, sees_all=False)


def test_a_client_names_no_older_snapshot_than_before() -> None:
    for batch, sample in ((37, 38), (38, 37)):
        with pytest.raises(DifferenceError):
            a_judge().named(Reply(iso(1_000 * batch), iso(1_000 * sample), {}), Named(38, 38))


def a_moment(seconds: int, **values: float) -> clients_seen.Sample:
    return clients_seen.Sample(**{**dict.fromkeys(clients_seen.COLUMNS, 0), "seconds": seconds, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["memory_bytes", "threads", "files"])
def test_what_grows_after_the_first_quarter_is_found(name: str) -> None:
    flat = [a_moment(at, **{name: 4e8 if at > 100 else 1e8}) for at in range(400)]
    rising = [a_moment(at, **{name: 4e8 + at * 2e5}) for at in range(400)]
    assert all(is_good for _, is_good in clients_seen.growth(flat))
    assert [is_good for _, is_good in clients_seen.growth(rising)].count(False) == 1
