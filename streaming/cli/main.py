"""The `offsetlake` command: all commands in groups; errors become messages and exit codes.

Exit code 0 is success, 1 failure, 2 misuse.
"""

import sys
import warnings
from types import ModuleType
from typing import Final

import click

from streaming.cli.commands import (
    alerts,
    check,
    decode,
    expiry,
    history,
    jars,
    job,
    lag,
    leftovers,
    maintain,
    queries,
    restore,
    scram,
    serve,
)
from streaming.cli.output import finish, open_closed_streams, print_error, stderr_optional, watched_output
from streaming.model.errors import MissingLibraryError, MisuseError, OffsetlakeError


def _of(*modules: ModuleType) -> list[click.Command]:
    """Return the commands defined in modules, in order."""
    values = [value for module in modules for value in vars(module).values()]
    return [value for value in values if isinstance(value, click.Command)]


COMMANDS: Final[dict[str, list[click.Command]]] = {
    "Follow the topic": _of(check, job),
    "Query the tables": _of(queries, history, lag),
    "Alerts and expiry": _of(alerts, expiry, leftovers, restore),
    "Serve": _of(serve, scram),
    "Tools": _of(maintain, decode, jars),
}
"""All commands, under the section titles of the help."""


def main() -> None:
    """Run the command; errors that a user can act on are one message without a traceback."""
    open_closed_streams()
    with watched_output(), warnings.catch_warnings():
        if not sys.warnoptions:  # libraries' warnings are not for users
            warnings.simplefilter("ignore")
        sys.exit(finish(_run_command()))


def _run_command() -> int:
    """Run the command, print its error, if any; return the exit code."""
    try:
        _refuse_other_bytes(sys.argv)
        return int(cli(prog_name="offsetlake", standalone_mode=False) or 0)
    except SystemExit as ended:
        return int(ended.code or 0)
    except click.ClickException as error:
        with stderr_optional():
            _with_advice(error).show()
        return error.exit_code
    except click.Abort:  # Ctrl-C
        return 130
    except BrokenPipeError:  # the reader has gone, as in `offsetlake offsets | head`
        return 0
    except OffsetlakeError as error:
        print_error(error)
        return error.exit_code


_ADVICE: Final = {
    (
        "lag",
        "--since",
    ): "It shows one moment: use --as-of. For many: `offsetlake history --every 5m --since`.",
    ("offsets", "--since"): "It shows one moment: use --as-of. For changes: `offsetlake history --since`.",
    (
        "expiring",
        "--since",
    ): "It shows one moment: use --as-of. For removed offsets: `offsetlake removed --since`.",
    ("status", "--group"): "It shows the job. For a group: `offsetlake groups`, `offsets` or `health`.",
    (
        "alerts",
        "--group",
    ): "It lists alerts of all groups: `offsetlake alerts --output json` has the group of each.",
}
"""Alternatives to options that users expect of a command."""


def _with_advice(error: click.ClickException) -> click.ClickException:
    """Add the alternative to an unknown option, if there is one, instead of similar options."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        advice = _ADVICE.get((str(error.ctx.info_name), error.option_name))
        if advice is not None:
            return click.UsageError(f"{error.message} {advice}", error.ctx)
    return error


def _refuse_other_bytes(arguments: list[str]) -> None:
    """Reject arguments that are not UTF-8, which no name in Kafka is; Python keeps them as surrogates."""
    for argument in arguments:
        if not argument.isascii() and any("\ud800" <= char <= "\udfff" for char in argument):
            raise MisuseError(
                f"reading the command line: expected text in UTF-8, found {argument!r}. "
                "Check the encoding of the terminal or script."
            )


class _Grouped(click.Group):
    """Lists the commands under the titles of `COMMANDS`, and explains missing libraries of one."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in ("streaming", "decoders"):  # a defect of ours
                raise
            raise MissingLibraryError(str(ctx.invoked_subcommand), error.name) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = [str(command.name) for commands in COMMANDS.values() for command in commands]
        limit = formatter.width - 6 - max(map(len, names))  # as in click
        for title, commands in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(str(command.name), command.get_short_help_str(limit)) for command in commands]
                )


@click.group(cls=_Grouped, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="offsetlake")
def cli() -> None:
    """Kafka's __consumer_offsets as Delta tables you can query, retain and alert on.

    \b
      offsetlake demo                                      try it: a local broker, groups and the job
      offsetlake check --bootstrap-server localhost:9092   whether the job can run with these brokers
      offsetlake run --bootstrap-server localhost:9092     follow the topic into the tables
      offsetlake offsets --group billing                   committed offsets of a group
      offsetlake offsets --group billing --as-of 2h        committed offsets of two hours ago
      offsetlake status                                    how far the job has read
    """


for _commands in COMMANDS.values():
    for _command in _commands:
        cli.add_command(_command)
