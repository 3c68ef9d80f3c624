"""The command that checks whether the job could run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.layout.forms import Form
from streaming.cli.logs import Warnings, logs_to
from streaming.cli.options import broker_options, config_option, settings_of, source_topic_option
from streaming.cli.output import FORMATS, Format, print_footer, warn
from streaming.common.escapes import shown
from streaming.settings.client_names import unknown_names
from streaming.settings.exposed import exposed_secrets

if TYPE_CHECKING:
    from streaming.check.findings import Finding


@click.command()
@broker_options
@source_topic_option
@config_option
@click.option(
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Output format; a table is printed line by line, as results are found.",
)
def check(
    bootstrap_server: str | None,
    command_config: Path | None,
    topic: str | None,
    config: Path | None,
    output: Format,
) -> int:
    """Check whether the job can run with these brokers: sign-in, permissions, topic, clocks.

    One line per check: ok; warning (the job can run, but some data will be missing, or can be wrong); failed
    (the job cannot run); unknown (the brokers did not report the value, or the check could not be made). The
    exit code is 1 if a check failed. The command writes nothing to Kafka, and joins no group.

    \b
      offsetlake check --bootstrap-server localhost:9092
      offsetlake check --bootstrap-server kafka:9093 --command-config client.properties
    """
    from streaming.check.checks import checks
    from streaming.check.findings import is_fatal
    from streaming.common.times import now_ms

    settings = settings_of(config, command_config, bootstrap_server=bootstrap_server, topic=topic)
    warn([*unknown_names(settings.source.client), *exposed_secrets(settings, config, command_config)])
    found = []
    with logs_to(Warnings()):
        for finding in checks(settings, now_ms):
            found.append(finding)
            if output == "table":
                print(shown(_line(finding)), flush=True)
    if output != "table":
        _print_rows(found, output)
    cannot = is_fatal(found)
    print_footer([f"the job {'cannot' if cannot else 'can'} run with {settings.source.bootstrap_servers}"])
    return int(cannot)


def _line(finding: "Finding") -> str:
    advice = f". {finding.advice}" if finding.advice else ""
    return f"{finding.result:<7}  {finding.check:<19}  {finding.found}{advice}"


def _print_rows(found: list["Finding"], output: Format) -> None:
    import pyarrow as pa

    from streaming.cli.render import TableStyle, print_rows

    schema = pa.schema([(name, pa.string()) for name in ("check", "result", "found", "advice")])
    print_rows(pa.Table.from_pylist([asdict(one) for one in found], schema), output, Form(), TableStyle())
