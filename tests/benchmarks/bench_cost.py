"""What the job costs beside references, on one machine in one run: `make bench ARGS="--only cost"`.

Contestants take turns, each as a process of its own: the job of this checkout, that of others (`--tree`), a
bare PySpark query of the same shape, a plain consumer loop that only counts records, and any foreign monitor
with a Prometheus counter (`--beside`). Only ratios within one run count.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.benchmarks.bench_job import describe_machine
from tests.benchmarks.cost.contestants import (
    ROOT,
    ConsumerReference,
    Contestant,
    ForeignMonitor,
    Job,
    SparkReference,
)
from tests.benchmarks.cost.following import Following, measure_following
from tests.benchmarks.cost.reading import measure_reading
from tests.benchmarks.cost.starting import measure_starts
from tests.benchmarks.cost.table import Table
from tests.benchmarks.workloads import OLD_SHARE, Workload

OWN: Final = "this"
SIZES: Final = {"A": (12_000_000, 50_000, 500), "C": (3_000_000, 1_000_000, 20_000)}
"""Records, keys and groups."""

KMINION: Final = Path(__file__).parent / "cost" / "kminion.yaml"
_RECENT_S: Final = 1_800
"""How long ago the first commit is: none is older than any monitor keeps."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be chosen."""
    group = parser.add_argument_group("cost")
    add = group.add_argument
    add("--cost-cases", nargs="+", choices=list(_CASES), default=list(_CASES), help="default: all")
    add("--cost-runs", type=int, default=1, help="turns of all contestants (default: %(default)s)")
    add("--cost-who", nargs="+", choices=[OWN, "spark", "consumer"], default=[OWN, "spark", "consumer"],
        help="which of those that come with this checkout (default: all)")  # fmt: skip
    add("--tree", type=Path, action="append", default=[], help="another checkout; repeatable")
    add("--cost-settings", type=Path, help="a file of job settings to try, in this checkout only")
    add("--cost-trigger", default="5s", help="when following (default: %(default)s)")
    add("--cost-windows", type=float, nargs="+", default=[150.0, 600.0],
        help="seconds of commits after which is measured (default: 150 600)")  # fmt: skip
    add("--cost-window-seconds", type=float, default=60, help="for how long (default: %(default)s)")
    add("--cost-memory-after", type=float, default=0, metavar="SECONDS",
        help="go on, and look at the memory once more after so many seconds of commits")  # fmt: skip
    add("--cost-rest", type=float, default=60, help="seconds without commits (default: %(default)s)")
    add("--cost-partitions", type=int, default=50, help="offsets partitions to follow (default: %(default)s)")
    add("--cost-keys", type=int, default=50_000, help="live keys to follow (default: %(default)s)")
    add("--cost-rate", type=int, default=1_000, help="commits a second (default: %(default)s)")
    for name, (records, *_) in SIZES.items():
        add(f"--cost-records-{name.lower()}", type=int, default=records, help="default: %(default)s")
    add("--cost-old-share", type=float, default=OLD_SHARE,
        help="of the commits that are read, as before Kafka 4.1 (default: %(default)s)")  # fmt: skip
    add("--beside", type=Path, metavar="PATH", help="a foreign monitor; by default started as KMinion is")
    add("--beside-config", type=Path, default=KMINION, metavar="TEMPLATE",
        help="its configuration, with {bootstrap} and {port} (default: %(default)s)")  # fmt: skip
    add("--beside-arguments", default="", help="its arguments; {config} is the configuration's file")
    add("--beside-environment", nargs="*", default=["CONFIG_FILEPATH={config}"], metavar="NAME=VALUE")
    add("--beside-url", default="http://127.0.0.1:{port}/metrics", help="default: %(default)s")
    add("--beside-metric", default="kminion_exporter_offset_consumer_records_consumed_total",
        help="its counter of records read (default: %(default)s)")  # fmt: skip


def measure(options: argparse.Namespace) -> None:
    """Run and print all cases."""
    print(describe_machine())
    for name in dict.fromkeys(options.cost_cases):
        table = _CASES[name](options)
        table.end(OWN, [tree_name(tree) for tree in options.tree])


def contestants(options: argparse.Namespace) -> list[Contestant]:
    """All who take part."""
    settings = options.cost_settings.read_text() if options.cost_settings else ""
    found: list[Contestant] = [Job(OWN, ROOT, settings)] if OWN in options.cost_who else []
    found += [Job(tree_name(tree), tree.resolve()) for tree in options.tree]
    if "spark" in options.cost_who:
        found.append(SparkReference())
    if "consumer" in options.cost_who:
        found.append(ConsumerReference())
    if options.beside:
        found.append(
            ForeignMonitor(
                path=options.beside.resolve(),
                template=options.beside_config.read_text(),
                arguments=options.beside_arguments,
                environment=options.beside_environment,
                url=options.beside_url,
                metric=options.beside_metric,
            )
        )
    return found


def started(options: argparse.Namespace) -> list[Contestant]:
    """All who are started only to read what is there; to see that it runs at all, Spark alone need not."""
    found = contestants(options)
    return [one for one in found if not (options.quick and isinstance(one, SparkReference))]


def tree_name(tree: Path) -> str:
    """What tables call another checkout."""
    return f"tree {tree.resolve().name}"


def measure_follow(options: argparse.Namespace) -> Table:
    """Follow at a steady rate."""
    part = 10 if options.quick else 1
    following = Following(
        partitions=options.cost_partitions,
        keys=options.cost_keys // part,
        commits_per_s=options.cost_rate // part,
        trigger=options.cost_trigger,
        windows=[3.0] if options.quick else options.cost_windows,
        window_s=options.cost_window_seconds / part,
        memory_after_s=0 if options.quick else options.cost_memory_after,
        rest_s=2.0 if options.quick else options.cost_rest,
    )
    return measure_following(following, contestants(options), options.cost_runs)


def measure_a(options: argparse.Namespace) -> Table:
    """Read few keys often."""
    return measure_reading(workload(options, "A"), started(options), options.cost_runs)


def measure_c(options: argparse.Namespace) -> Table:
    """Read many keys."""
    return measure_reading(workload(options, "C"), started(options), options.cost_runs)


def workload(options: argparse.Namespace, name: str) -> Workload:
    """The workload of a name, in its size."""
    part = 10 if options.quick else 1
    _, keys, groups = SIZES[name]
    records = getattr(options, f"cost_records_{name.lower()}")
    first_ms = 1_000 * (int(time.time()) - _RECENT_S)
    return Workload(
        name=name,
        records=records // part,
        keys=keys // part,
        groups=groups // part,
        first_timestamp_ms=first_ms,
        old_share=options.cost_old_share,
    )


def measure_start(options: argparse.Namespace) -> Table:
    """Start on few keys."""
    keys = options.start_keys // (10 if options.quick else 1)
    starting = [one for one in started(options) if isinstance(one, Job | SparkReference)]
    return measure_starts(keys, starting, options.cost_runs)


_CASES: Final[Mapping[str, Callable[[argparse.Namespace], Table]]] = {
    "start": measure_start,
    "A": measure_a,
    "C": measure_c,
    "follow": measure_follow,
}
