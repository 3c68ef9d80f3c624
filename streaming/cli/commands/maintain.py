"""The command that runs maintenance once; the job runs it on a schedule."""

from dataclasses import asdict
from pathlib import Path

import click

from streaming.cli.layout import forms
from streaming.cli.options import print_listed, query_options, settings_of, tables_of
from streaming.cli.output import Format


@click.command()
@query_options
def maintain(table_root: str | None, cluster: str | None, output: Format, config: Path | None) -> None:
    """Compact the tables, delete rows past their retention, and delete unused files.

    A running job does this by itself ([tables] maintain_every). It is safe to run this command while the job
    is running. Schedule this command if you run the job only with --once.

    \b
      offsetlake maintain
      offsetlake maintain --table-root s3://lake/offsets --output json
    """
    import pyarrow as pa

    from streaming.common.times import now_ms
    from streaming.maintenance import maintenance
    from streaming.maintenance.trimming import KeepTimes
    from streaming.settings.created_files import created_files

    settings = settings_of(config, table_root=table_root, cluster=cluster)
    with created_files(settings.job.readable_by_group):
        reports = maintenance.maintain(tables_of(settings), KeepTimes.of(settings), clock=now_ms)
    rows = pa.Table.from_pylist([asdict(report) for report in reports], maintenance.REPORT)
    print_listed(rows, output, forms.MAINTAIN)
