"""What `make soak` runs: the real job beside a real broker.

`--for 25m --groups 1000000`: short-lived groups that the broker itself expires, beside steady ones. Whatever
is kept for live groups must stay flat, and in the end nothing may be left of the others. `--writes --for 5m`:
a million live offsets and a thousand commits a second at random: how much is written, and where.
`--lag --for 10m`: the lags that the tables show beside the broker's.
`--clients --for 1h`: the Kafka listener of `offsetlake serve` with 200 connections of clients of many makers.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from streaming.common.times import parse_duration_ms
from tests.soak import report
from tests.soak.clients import SHORTEST_S, soak_clients
from tests.soak.come_and_go import GONE_AFTER_S, soak
from tests.soak.lag import compare_lags
from tests.soak.traffic import RandomKeys, ShortLived
from tests.soak.watch import Sample
from tests.soak.writes import measure_writes

WARM_UP_S: Final = 120.0
"""Until the first groups have expired and Java has compiled what is hot: plotted, but not in the table."""


def main(arguments: Sequence[str]) -> int:
    """Run what the options ask for; returns 1, or fails, if something is not as it must be."""
    options = parser().parse_args(arguments)
    seconds = parse_duration_ms(options.duration, name="--for") / 1_000
    with tempfile.TemporaryDirectory(prefix="offsetlake-soak-") as folder:
        if options.lag:
            compare_lags(Path(folder), seconds, say=say)
            return 0
        if options.clients:
            if seconds < SHORTEST_S:
                parser().error(
                    f"--clients: expected --for {SHORTEST_S:g}s or longer, found {options.duration}"
                )
            good = soak_clients(Path(folder), options.out, offsets=options.keys, seconds=seconds, say=say)
            return 0 if good else 1
        if options.writes:
            plan = RandomKeys(keys=options.keys, rate=options.rate, seconds=seconds)
            measure_writes(Path(folder), plan, say=say)
            return 0
        coming = max(30.0, seconds - GONE_AFTER_S)
        groups = ShortLived(groups=options.groups, seconds=coming, steady=options.steady)
        options.out.mkdir(parents=True, exist_ok=True)
        try:
            soak(
                Path(folder),
                groups,
                every_s=options.every,
                say=say,
                tell=lambda samples: tell(samples, options.out, until=coming),
            )
        finally:
            for file in [*Path(folder).glob("job/*.txt"), *Path(folder).glob("job/*.log")]:
                shutil.copy(file, options.out)
    return 0


def tell(samples: Sequence[Sample], out: Path, *, until: float) -> None:
    """Print the table, and write samples and plot."""
    report.write_csv(out / "soak.csv", samples)
    report.plot(out / "soak.svg", samples, report.PANELS)
    settled = [at for at in samples if WARM_UP_S <= at.seconds <= until] or samples
    say(report.table(settled, report.ROWS))
    say(f"samples and plot: {out}/soak.csv, soak.svg")


def parser() -> argparse.ArgumentParser:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="make soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--for", dest="duration", default="25m", help="how long (default: %(default)s)")
    parser.add_argument(
        "--groups", type=int, default=1_000_000, help="short-lived groups (default: %(default)s)"
    )
    parser.add_argument("--steady", type=int, default=1_500, help="groups that stay (default: %(default)s)")
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between samples (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("soak"), help="folder for samples and plot (default: %(default)s)"
    )
    parser.add_argument("--lag", action="store_true", help="compare lags with the broker's instead")
    parser.add_argument("--writes", action="store_true", help="measure what is written instead")
    parser.add_argument(
        "--clients", action="store_true", help="ask the Kafka listener with many clients instead"
    )
    parser.add_argument(
        "--keys",
        type=int,
        default=1_000_000,
        help="live offsets for --writes, --clients (default: %(default)s)",
    )
    parser.add_argument(
        "--rate", type=float, default=1_000.0, help="commits a second for --writes (default: %(default)s)"
    )
    return parser


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
