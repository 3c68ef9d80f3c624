"""What `make bench` measures: the column reader, requests, questions to the tables and about lag, the
snapshot that `serve` keeps of the tables, its metrics, pages and listener, Kafka's own tool there and at a
broker, and the job beside a raw read.

Then the command from outside: how soon it shows commits, how fast it starts, how it grows, what it costs
beside references, and how many requests it sends to an object store; and the memory of `serve`.
"""

import argparse
import signal
import sys
from collections.abc import Sequence

from tests.benchmarks import (
    bench_columns,
    bench_cost,
    bench_follow,
    bench_growth,
    bench_messages,
    bench_requests,
    bench_serve_memory,
    bench_start,
)
from tests.benchmarks.bench_job import measure_jobs
from tests.benchmarks.bench_lag import measure_lag
from tests.benchmarks.bench_memory_snapshot import measure_snapshot
from tests.benchmarks.bench_metrics import measure_metrics
from tests.benchmarks.bench_page import measure_page
from tests.benchmarks.bench_past import measure_past
from tests.benchmarks.bench_queries import measure_queries
from tests.benchmarks.bench_serve import measure_serve
from tests.benchmarks.bench_tool import measure_tool
from tests.benchmarks.workloads import Workload

FROM_OUTSIDE = {
    "follow": bench_follow,
    "start": bench_start,
    "growth": bench_growth,
    "cost": bench_cost,
    "requests": bench_requests,
    "serve-memory": bench_serve_memory,
}
"""Benchmarks of the real command as a process."""


def main(arguments: Sequence[str]) -> None:
    """Run what the options ask for and print its tables."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that jobs and brokers are stopped
    if options.only in (None, "columns"):
        sys.argv[1:] = ["--rounds", "3"] if options.quick else []
        bench_columns.main()
    if options.only in (None, "messages"):
        bench_messages.main()
    if options.only in (None, "queries"):
        part = 10 if options.quick else 1
        measure_queries(offsets=1_000_000 // part, groups=20_000 // part, unfolded=100_000 // part)
    if options.only in (None, "serve"):
        part = 10 if options.quick else 1
        measure_serve(offsets=1_000_000 // part, groups=20_000 // part, seconds=20 / part)
    if options.only in (None, "past"):
        part = 10 if options.quick else 1
        measure_past(offsets=1_000_000 // part, groups=20_000 // part, seconds=10 / part)
    if options.only in (None, "tool"):
        measure_tool(groups=100 if options.quick else 1_000, runs=1 if options.quick else 3)
    if options.only in (None, "lag"):
        part = 10 if options.quick else 1
        measure_lag(offsets=1_000_000 // part, groups=20_000 // part)
    if options.only in (None, "metrics"):
        part = 10 if options.quick else 1
        measure_metrics(offsets=1_000_000 // part, groups=20_000 // part, seconds=30 / part)
    if options.only in (None, "page"):
        part = 10 if options.quick else 1
        measure_page(offsets=1_000_000 // part, groups=20_000 // part, seconds=60 / part)
    if options.only in (None, "snapshot"):
        measure_snapshot(part=10 if options.quick else 1)
    if options.only in (None, "job"):
        measure_jobs(
            workloads(options),
            records_per_batch=100_000 if options.quick else options.records_per_batch,
            runs=1 if options.quick else options.runs,
            spark_conf=dict(pair.split("=", 1) for pair in options.spark_conf),
        )
    for name, benchmark in FROM_OUTSIDE.items():
        if options.only in (None, name):
            benchmark.measure(options)


def parser() -> argparse.ArgumentParser:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        choices=[
            "columns",
            "messages",
            "queries",
            "lag",
            "metrics",
            "page",
            "snapshot",
            "serve",
            "past",
            "tool",
            "job",
            *FROM_OUTSIDE,
        ],
        help="one of the benchmarks",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: does it run at all?")
    sizes = {"A": (12_000_000, 50_000, 500), "C": (1_000_000, 1_000_000, 20_000)}
    for name, (records, keys, groups) in sizes.items():
        for what, default in (("records", records), ("keys", keys), ("groups", groups)):
            parser.add_argument(
                f"--{what}-{name.lower()}",
                type=int,
                default=default,
                help=f"{what} of workload {name} (default: %(default)s; 0 records: leave it out)"
                if what == "records"
                else f"{what} of workload {name} (default: %(default)s)",
            )
    parser.add_argument("--runs", type=int, default=3, help="runs of the job (default: %(default)s)")
    parser.add_argument("--records-per-batch", type=int, help="instead of the job's default")
    parser.add_argument(
        "--spark-conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a Spark setting to try; repeatable",
    )
    for benchmark in FROM_OUTSIDE.values():
        benchmark.add_options(parser)
    return parser


def workloads(options: argparse.Namespace) -> list[Workload]:
    """The workloads of the job benchmark that have records."""
    part = 10 if options.quick else 1
    named = {
        name: {
            what: getattr(options, f"{what}_{name.lower()}") // part for what in ("records", "keys", "groups")
        }
        for name in ("A", "C")
    }
    return [Workload(name=name, **sizes) for name, sizes in named.items() if sizes["records"]]


if __name__ == "__main__":
    main(sys.argv[1:])
