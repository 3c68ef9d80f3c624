"""The command that maintains the tables by hand; the job does the same on a schedule."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from streaming.cli.options import query_options


@click.command()
@query_options
def maintain(table_root: str | None, output: Any, config: Path | None) -> None:
    """Compact the tables, drop what is older than its retention, and delete files that nobody needs.

    A running job does this by itself ([tables] maintain_every), and this is safe beside it. Needed where jobs
    end before they get to it (--once).

    \b
      offsetlake maintain
      offsetlake maintain --table-root s3://lake/offsets --output json
    """
    import pyarrow as pa

    from streaming.cli.render import print_rows
    from streaming.maintenance import maintenance
    from streaming.maintenance.trimming import KeepTimes
    from streaming.model.progress import now_ms
    from streaming.settings.reading import read_settings
    from streaming.tables.tables import Tables

    settings = read_settings(config, {"tables.root": table_root}).tables
    tables = Tables(settings.root, settings.storage_options)
    reports = maintenance.maintain(tables, KeepTimes.of(settings), clock=now_ms)
    print_rows(pa.Table.from_pylist([asdict(report) for report in reports], maintenance.REPORT), output)
