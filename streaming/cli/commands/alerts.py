"""The command that lists alerts or evaluates the rules once."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streaming.cli.layout import forms
from streaming.cli.logs import Warnings, logs_to
from streaming.cli.options import (
    Output,
    answer_options,
    broker_of,
    broker_options,
    print_answer,
    refuse_output_options,
    settings_of,
    tables_of,
)
from streaming.cli.output import for_programs, warn
from streaming.common.times import MINUTE_MS, iso
from streaming.model.errors import MisuseError
from streaming.settings.exposed import exposed_secrets
from streaming.settings.model import Settings
from streaming.tables.tables import Tables

if TYPE_CHECKING:
    from streaming.model.progress import Progress

_LATE_MS: Final = 5 * MINUTE_MS


@click.command()
@click.option("--all", "closed_too", is_flag=True, help="Include closed alerts.")
@click.option(
    "--evaluate",
    is_flag=True,
    help="Evaluate the rules once and deliver the alerts, instead of listing them (for cron). If a job is "
    "running, the command only reports when the job last evaluated the rules.",
)
@broker_options
@answer_options
def alerts(
    closed_too: bool,
    evaluate: bool,
    bootstrap_server: str | None,
    command_config: Path | None,
    table_root: str | None,
    cluster: str | None,
    output: Output,
    config: Path | None,
) -> None:
    """List open alerts, or evaluate the rules once.

    A running job evaluates the rules by itself: --evaluate then only reports the time of the last evaluation.
    While the job has been down for more than 3 minutes, or has not read everything, alerts about groups
    neither open nor close (exceptions: docs/alerts.md); standard error shows this. With --evaluate and
    --bootstrap-server or --command-config, the command requests log start offsets from the brokers, for the
    rule offset_below_log_start.

    \b
      offsetlake alerts
      offsetlake alerts --all --output json
      offsetlake alerts --evaluate --config alerts.toml    # where no job is running
    """
    from streaming.alerts.listing import list_alerts
    from streaming.queries.as_of import AsOf
    from streaming.settings.created_files import created_files

    if not evaluate and (bootstrap_server or command_config):
        raise MisuseError(
            "--bootstrap-server and --command-config: expected with --evaluate only, found without. "
            "Alerts are listed from the tables; no broker is asked."
        )
    if evaluate and closed_too:
        raise MisuseError("--evaluate and --all: expected one of them, found both.")
    if evaluate:
        refuse_output_options("--evaluate", output)
    settings = settings_of(
        config, command_config, table_root=table_root, cluster=cluster, bootstrap_server=bootstrap_server
    )
    tables = tables_of(settings)
    if evaluate:
        warn(exposed_secrets(settings, config, command_config))
        with created_files(settings.job.readable_by_group):
            _evaluate(tables, settings, asks_brokers=bool(bootstrap_server or command_config))
    else:
        about, rows = tables.ask(lambda at: (AsOf.at(None, at), list_alerts(tables, closed_too=closed_too)))
        print_answer(rows, output, forms.ALERTS, about)
        warn(about.caveats())


def _evaluate(tables: Tables, settings: Settings, *, asks_brokers: bool) -> None:
    from streaming.alerts.evaluation import is_written_by_a_job
    from streaming.alerts.receivers import receivers, source_labels
    from streaming.alerts.watch import AlertWatch
    from streaming.common.times import now_ms

    progress, now = tables.progress(), now_ms()
    if is_written_by_a_job(progress, settings.job.heartbeat_every_ms, now):
        _leave_to_the_job(tables, progress, settings, now)
        return
    tables.create()
    for_programs(sys.stdout)
    watch = AlertWatch(
        tables,
        settings.alerts,
        receivers(
            settings.alerts,
            write=partial(print, flush=True),
            source=source_labels(progress.cluster_id, progress.topic),
        ),
        ask_log_ranges=broker_of(settings).log_ranges if asks_brokers else None,
        health=settings.health,
    )
    with logs_to(Warnings()):
        is_done = watch.evaluate_and_deliver()
    if not is_done:
        sys.exit(1)


def _leave_to_the_job(tables: Tables, progress: "Progress", settings: Settings, now: int) -> None:
    """Report the alerts of a running job; exit with 1 if it has not evaluated them for long, or ever, or if
    it seems to run only because clocks differ."""
    from streaming.alerts.listing import describe_evaluation, waiting_in_all

    seconds = (now - progress.heartbeat) / 1_000
    waiting = waiting_in_all(tables)
    warn(
        [
            f"a job wrote to the tables {seconds:.0f} s ago and evaluates alerts itself: nothing done here; "
            f"{describe_evaluation(progress, now)}, {waiting or 'none'} undelivered"
        ]
    )
    late_ms = max(_LATE_MS, 3 * settings.alerts.evaluate_every_ms)
    failures = _failures(progress, tables.created_at(), late_ms, now)
    if failures:
        warn(failures)
        sys.exit(1)


def _failures(progress: "Progress", created_at: int, late_ms: int, now: int) -> list[str]:
    """Return why alerts are not evaluated although a job seems to run; empty if they are."""
    at = progress.alerts_evaluated_at
    if progress.heartbeat - now > _LATE_MS:
        return [
            f"expected a heartbeat in the past, found one of {iso(progress.heartbeat)}: correct the clock "
            "of the job's machine or of this one; until then it is not known whether a job runs"
        ]
    if progress.heartbeat - (created_at if at is None else at) <= late_ms:
        return []
    found = (
        f"never did since the tables were created at {iso(created_at)}"
        if at is None
        else f"did not since {iso(at)}"
    )
    return [
        f"expected the job to evaluate alerts all along, found that it {found}: if it did not just start, "
        "look at its output"
    ]
