"""What the pages of `offsetlake serve` take: `python -m tests.benchmarks --only page`.

A process of its own first makes every page over 1 M offsets in 20 k groups: the first time, then up to twenty
different ones, so that the page cache does not answer, and one after a new assessment. Processor time is that
of the whole process, and nothing else runs in it. Then fifty viewers look at the command, each at `/`,
`/groups` and a group of its own, every five seconds and with ETags as browsers do, while a batch is written
every five seconds and Kafka's clients ask for the offsets of one group.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Final
from urllib.parse import urlencode

from processes import proportional_memory

from decoders.messages import request_bytes
from streaming.common.times import HOUR_MS, now_ms
from streaming.lag.health_rules import HealthRules
from streaming.serve.assessment.assessment import Assessment
from streaming.serve.assessment.cluster import ServedCluster
from streaming.serve.assessment.counters import Counters
from streaming.serve.assessment.refresher import Refresher
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.memory.tailer import Tailer
from streaming.serve.page.asked import HeldAnswers, PageCluster
from streaming.serve.page.pages import VIEWS, Pages
from streaming.serve.page.rate import CommitRate
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables
from tests.benchmarks import bench_metrics, bench_serve, page_tables
from tests.benchmarks.page_tables import Cluster, group_name, middle_group, topic_name

MIB: Final = 2**20
TIMES: Final = 20
LEAST: Final = 3
LONGEST_S: Final = 10.0
VIEWERS: Final = 50
EVERY_S: Final = 5.0
SLOW_MS: Final = 300
LARGE_BYTES: Final = 300_000
_RATE: Final = 1_000  # of Kafka's requests
_GROUPS: Final = 2  # of usual size, looked at in turn: the first time their changes are read


def measure_page(*, offsets: int, groups: int, seconds: float) -> None:
    """Fill tables, and print what pages of them take."""
    with tempfile.TemporaryDirectory(prefix="offsetlake-bench-") as root:
        cluster = page_tables.fill(Tables(f"{root}/tables"), offsets, groups)
        sizes = f"{offsets:,} offsets in {groups:,} groups, the largest with {len(cluster.large):,}"
        print(f"\n{sizes}, 1 % of the groups behind", flush=True)
        command = [sys.executable, "-m", "tests.benchmarks.bench_page"]
        started = str(cluster.started)
        subprocess.run([*command, "work", root, str(offsets), str(groups), started], check=True)
        changing = [*command, "change", root, str(offsets), str(groups), started]
        with _process(changing), bench_metrics.served(Path(root)) as (kafka, http_port, pid):
            _measure_viewed(kafka, http_port, pid, groups, seconds)


# --- every page, in process ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """A page to be measured; `vary` gives the parameters of the nth request."""

    name: str
    path: str
    vary: Callable[[int], Mapping[str, object]] = field(default=lambda _: {})

    def parameters(self, nth: int) -> dict[str, str]:
        given = {name: str(value) for name, value in self.vary(nth).items()}
        return {**given, "nth": str(nth)}  # a parameter that no page knows keeps the cache from answering


def cases(cluster: Cluster, now: int) -> list[Case]:
    """All pages; those of a group and of an offset of a usual group and of the largest, now and before."""
    largest, then = group_name(cluster.groups - 1), now - HOUR_MS
    topic_of_largest = topic_name(int(cluster.topic_of[cluster.small]))

    def usual(nth: int) -> dict[str, object]:
        return {"group": group_name(middle_group(cluster.groups, nth % _GROUPS))}

    def its_offset(nth: int) -> dict[str, object]:
        number = middle_group(cluster.groups, nth % _GROUPS)
        return {"group": group_name(number), "topic": topic_name(number % 50), "partition": 0}

    def of_largest(nth: int) -> dict[str, object]:
        return {"group": largest, "topic": topic_of_largest, "partition": nth % 10}

    found = [
        Case(name="/", path="/"),
        Case(name="/events", path="/events"),
        Case(name="/groups", path="/groups", vary=lambda nth: {"page": nth + 1}),
        Case(
            name="/groups, by lag time",
            path="/groups",
            vary=lambda nth: {"page": nth + 1, "sort": "lag_seconds", "order": "falling"},
        ),
        Case(name="/groups, search", path="/groups", vary=lambda nth: {"q": f"{nth:02}"}),
        Case(name="/groups, pattern", path="/groups", vary=lambda nth: {"q": f"*{nth:02}?"}),
        Case(name="/topics", path="/topics", vary=lambda nth: {"page": nth + 1}),
        Case(name="/topic", path="/topic", vary=lambda nth: {"topic": topic_name(nth)}),
        Case(name="/expiring", path="/expiring", vary=lambda nth: {"page": nth + 1}),
        Case(name="/expiring, week", path="/expiring", vary=lambda nth: {"page": nth + 1, "within": "week"}),
        Case(name="/removed", path="/removed", vary=lambda nth: {"page": nth + 1}),
        Case(name="/alerts", path="/alerts", vary=lambda nth: {"page": nth + 1}),
        Case(name="/alerts, all", path="/alerts", vary=lambda nth: {"page": nth + 1, "which": "all"}),
        Case(name="/leftovers", path="/leftovers", vary=lambda nth: {"page": nth + 1}),
        Case(name="/clusters", path="/clusters"),
        Case(name="/status", path="/status"),
    ]
    for whose, group, offset in (
        ("usual", usual, its_offset),
        ("largest", lambda nth: {"group": largest, "page": nth + 1}, of_largest),
    ):
        found += [
            Case(name=f"/group, {whose}", path="/group", vary=group),
            Case(name=f"/group, {whose}, an hour ago", path="/group", vary=_at(then, group)),
            Case(name=f"/group/history, {whose}", path="/group/history", vary=group),
            Case(name=f"/group/history, {whose}, an hour ago", path="/group/history", vary=_at(then, group)),
            Case(name=f"/offset, {whose}", path="/offset", vary=offset),
            Case(name=f"/offset, {whose}, an hour ago", path="/offset", vary=_at(then, offset)),
            Case(name=f"/offset/history, {whose}", path="/offset/history", vary=offset),
            Case(
                name=f"/offset/history, {whose}, an hour ago", path="/offset/history", vary=_at(then, offset)
            ),
        ]
    assert {case.path for case in found} == set(VIEWS), "every page is measured"
    return found


def _at(then: int, vary: Callable[[int], Mapping[str, object]]) -> Callable[[int], Mapping[str, object]]:
    return lambda nth: {**vary(nth), "as_of": then - 1_000 * nth}


@dataclass
class Present:
    """What the pages show: an assessment that only the benchmark replaces."""

    tailer: Tailer
    assessment: Assessment

    def snapshot(self) -> MemorySnapshot:
        return self.tailer.current

    def cluster(self, tables: Tables) -> PageCluster:
        settings = read_settings(options={"tables.root": tables.root})
        return ShownCluster(
            served=ServedCluster.of("", settings),
            rate=CommitRate(),
            answers=HeldAnswers(repeated=0),  # each page is made
            present=self,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownCluster(PageCluster):
    """A cluster whose assessment is replaced by hand."""

    present: Present

    def snapshot(self) -> MemorySnapshot:
        return self.present.snapshot()

    def assessment(self) -> Assessment:
        return self.present.assessment

    def failures(self) -> list[str]:
        return []

    def commits_per_minute(self, now: int) -> float | None:
        return 60_000.0


def present(tables: Tables, now: int) -> Present:
    """Read the tables and assess them at a moment."""
    settings = read_settings()
    tailer = Tailer(tables, clock=lambda: now, counters=Counters())
    assert tailer.poll()
    refresher = Refresher(
        tables,
        lambda: tailer.current,
        health=HealthRules.of(settings.health),
        expiry=settings.expiry,
        clock=lambda: now,
    )
    return Present(tailer, refresher.make())


def work(root: str, offsets: int, groups: int, started: int) -> None:
    """Make all pages in this process, and print what each took."""
    tables, now = Tables(f"{root}/tables"), now_ms()
    shown = present(tables, now)
    pages = Pages([shown.cluster(tables)])
    head = ["first", "p50", "p99", "cpu", "anew", "cpu", "kB"]
    print(f"{'page, ms':40}" + "".join(f"{name:>8}" for name in head), flush=True)
    for case in cases(Cluster(offsets=offsets, groups=groups, started=started), now):
        first = _made(pages, case, TIMES, now)
        warm, until = list[Took](), time.perf_counter() + LONGEST_S
        while len(warm) < LEAST or (len(warm) < TIMES and time.perf_counter() < until):
            warm.append(_made(pages, case, len(warm), now))
        shown.assessment = replace(shown.assessment)
        _print(case.name, first, warm, _made(pages, case, TIMES + 1, now))


@dataclass(frozen=True, kw_only=True)
class Took:
    """What a page took, in ms, and its size."""

    wall: float
    cpu: float
    bytes: int


def _made(pages: Pages, case: Case, nth: int, now: int) -> Took:
    wall, cpu = time.perf_counter(), time.process_time()
    made = pages.respond(case.path, case.parameters(nth), now)
    size = sum(map(len, made.pieces))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert made.status == 200, f"{case.name}: {b''.join(made.pieces).decode()}"
    return Took(wall=1_000 * wall, cpu=1_000 * cpu, bytes=size)


def _print(name: str, first: Took, warm: Sequence[Took], anew: Took) -> None:
    walls = [one.wall for one in warm]
    p99 = quantiles(walls, n=100, method="inclusive")[98]
    cpu, size = median(one.cpu for one in warm), max(one.bytes for one in warm)
    numbers = [first.wall, median(walls), p99, cpu, anew.wall, anew.cpu]
    missed = "  over" if max(cpu, anew.cpu) > SLOW_MS or size > LARGE_BYTES else ""
    print(f"{name:40}" + "".join(f"{one:8.1f}" for one in numbers) + f"{size / 1e3:8.1f}{missed}", flush=True)


# --- viewers of the command ------------------------------------------------------------------------------


def _measure_viewed(kafka: int, http_port: int, pid: int, groups: int, seconds: float) -> None:
    print(f"\nthe command, a batch every {page_tables.EVERY_S:g} s", flush=True)
    _print_memory("before the first page", pid)
    began = time.perf_counter()
    _get(http.client.HTTPConnection("127.0.0.1", http_port, timeout=60), "/", None)
    print(f"the first page, with the first assessment: {time.perf_counter() - began:.2f} s", flush=True)
    _print_memory("after it", pid)
    fetch = {"groups": [{"groupId": group_name(middle_group(groups)), "topics": None}]}
    frames = [request_bytes(9, 8, 1, "bench", fetch)]
    bench_serve.ask_small(kafka, frames, 1.0, _RATE)
    for viewers in (0, VIEWERS, 0):
        command = [sys.executable, "-m", "tests.benchmarks.bench_page", "view", str(http_port), str(groups)]
        viewing = [*command, str(viewers), str(seconds + EVERY_S)]
        with subprocess.Popen(viewing, stdout=subprocess.PIPE, text=True) as process:
            time.sleep(EVERY_S)  # until all viewers have begun
            cpu, began = bench_serve.cpu_of(pid), time.perf_counter()
            asked = bench_serve.ask_small(kafka, frames, seconds, _RATE)
            wall, cpu = time.perf_counter() - began, bench_serve.cpu_of(pid) - cpu
            told, _ = process.communicate()
        bench_serve.print_small(f"OffsetFetch, {viewers or 'no'} viewers", asked, wall)
        print(f"{'':40}{100 * cpu / wall:.0f} % of a core", flush=True)
        for path, seen in json.loads(told).items():
            _print_seen(path, seen)
    _print_memory("after the viewers", pid)


def _print_memory(when: str, pid: int) -> None:
    print(f"memory {when}: {proportional_memory({pid: 'it'})['it'] / MIB:.0f} MiB (PSS)", flush=True)


def _print_seen(path: str, seen: Mapping[str, list[float]]) -> None:
    statuses = {status: len(times) for status, times in seen.items()}
    times = [one for own in seen.values() for one in own]
    cuts = quantiles(times, n=100, method="inclusive")
    shown = f"p50 {cuts[49] * 1e3:.0f} ms, p99 {cuts[98] * 1e3:.0f} ms, longest {max(times) * 1e3:.0f} ms"
    print(f"  {path:38}{shown}; status: {statuses}", flush=True)


def view(port: int, groups: int, viewers: int, seconds: float) -> None:
    """Look at pages for some time; prints the seconds of each request by path and status, as JSON."""
    seen: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_look, args=(port, groups, nth, EVERY_S * nth / viewers, until, seen))
        for nth in range(viewers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(max(0.0, until - time.monotonic()))
    print(json.dumps(seen))


def _look(
    port: int, groups: int, nth: int, wait_s: float, until: float, seen: dict[str, dict[str, list[float]]]
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    group = urlencode({"group": group_name(middle_group(groups, nth))})
    etags: dict[str, str] = {}
    while time.monotonic() + wait_s < until:
        time.sleep(wait_s)
        for address in ("/", "/groups", f"/group?{group}"):
            began = time.perf_counter()
            status, etag = _get(connection, address, etags.get(address))
            seen[address.partition("?")[0]][str(status)].append(time.perf_counter() - began)
            if etag is not None:
                etags[address] = etag
        wait_s = EVERY_S


def _get(connection: http.client.HTTPConnection, address: str, etag: str | None) -> tuple[int, str | None]:
    connection.request("GET", address, headers={} if etag is None else {"If-None-Match": etag})
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("etag")


@contextmanager
def _process(command: Sequence[str]) -> Iterator[None]:
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", root, offsets, groups, started]:
            work(root, int(offsets), int(groups), int(started))
        case ["change", root, offsets, groups, started]:
            page_tables.keep_changing(f"{root}/tables", int(offsets), int(groups), int(started))
        case ["view", port, groups, viewers, seconds]:
            view(int(port), int(groups), int(viewers), float(seconds))
