"""What the commands share: their options, each defined once, and the settings and tables these name."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from streaming.cli.output import warn
from streaming.common.times import now_ms, parse_duration_ms, parse_moment
from streaming.model.errors import MisuseError
from streaming.settings.kinds import SERVERS, are_servers
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.brokers.broker import Broker
    from streaming.cli.render import Format
    from streaming.queries.completeness import AsOf

    Output = Format | Literal["document"]

Command = Callable[..., Any]
Option = Callable[[Command], Command]

_A_TIME: Final = "ISO 8601 (UTC unless it says otherwise), or -2h for two hours ago"


def all_of(*options: Option) -> Option:
    """Return what adds several options, which the help shows in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


# --- brokers, settings and tables ------------------------------------------------------------------------


def _brokers(_context: click.Context, _option: click.Parameter, servers: str | None) -> str | None:
    """Refuse what names no brokers."""
    if servers is not None and not are_servers(servers):
        raise MisuseError(f"--bootstrap-server: expected {SERVERS}, found {servers!r}.")
    return servers


bootstrap_server_option = click.option(
    "--bootstrap-server", metavar="HOST:PORT[,...]", callback=_brokers, help="Bootstrap brokers."
)
command_config_option = click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file of Kafka client settings (SASL, TLS), as for Kafka's own tools.",
)
broker_options = all_of(bootstrap_server_option, command_config_option)

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file; overrides the defaults (conf/offsetlake.toml).",
)
table_root_option = click.option(
    "--table-root", metavar="DIR|URL", help="Folder or URL of the tables.  [default: warehouse]"
)

_SETTINGS: Final = {
    "bootstrap_server": "source.bootstrap_servers",
    "topic": "source.topic",
    "table_root": "tables.root",
    "checkpoint": "job.checkpoint",
    "trigger": "job.trigger",
    "master": "spark.master",
}
"""Options that take the place of settings."""


def settings_of(config: Path | None, command_config: Path | None = None, **options: str | None) -> Settings:
    """Read the settings, with the options of `_SETTINGS` that are given (None: is not) laid over them."""
    settings = read_settings(config, {_SETTINGS[name]: value for name, value in options.items()})
    return with_command_config(settings, command_config)


def with_command_config(settings: Settings, file: Path | None) -> Settings:
    """Return the settings with those of a properties file for Kafka's clients laid over them."""
    from streaming.settings.client_names import refuse_mistaken
    from streaming.settings.properties import read_properties
    from streaming.settings.secrets import resolved_client

    if file is None:
        return settings
    properties = resolved_client(read_properties(file), where=str(file))
    refuse_mistaken(properties, where=str(file))
    client = {**settings.source.client, **properties}
    client.pop("bootstrap.servers", None)
    return replace(settings, source=replace(settings.source, client=client))


def tables_of(settings: Settings) -> Tables:
    """Return the tables that the settings name."""
    return Tables(settings.tables.root, settings.tables.storage_options)


def broker_of(settings: Settings) -> "Broker":
    """Return the brokers that the settings name; warns of client settings that nobody may heed."""
    from streaming.brokers.broker import Broker
    from streaming.settings.client_names import unknown_names

    warn(unknown_names(settings.source.client))
    return Broker(settings.source)


# --- what is asked ---------------------------------------------------------------------------------------

group_option = click.option(
    "--group", "groups", multiple=True, help="Only this group; repeatable. '' is the empty group id."
)
one_group_option = click.option("--group", required=True, help="The group. '' is the empty group id.")
topic_option = click.option(
    "--topic", "topics", multiple=True, metavar="T[:0,1]", help="Only this topic; repeatable."
)
since_option = click.option("--since", metavar="TIME", help=f"Only changes since this time: {_A_TIME}.")
within_option = click.option(
    "--within", metavar="DURATION", help="Only offsets expiring within this time, such as 24h."
)


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The options of a query about its answer: as of when, and how complete and fresh it must be."""

    now: int
    as_of: datetime | None
    is_complete: bool
    max_age_ms: int | None

    def moment(self, name: str, text: str | None) -> datetime | None:
        """Read another moment that an option names."""
        return None if text is None else parse_moment(text, self.now, name=name)

    def check(self, about: "AsOf") -> None:
        """Raise `IncompleteError` where an answer is less than was asked for."""
        with _naming("--require-complete"):
            about.check(is_complete=self.is_complete)
        with _naming("--max-age"):
            about.check(max_age_ms=self.max_age_ms)


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Begin what an answer lacks with the option by which it was asked for."""
    from streaming.queries.completeness import IncompleteError

    try:
        yield
    except IncompleteError as error:
        raise IncompleteError(f"{option}: {error}") from error


def asking_options(command: Command) -> Command:
    """Add `--as-of`, `--require-complete` and `--max-age`; the command gets them as `asking`."""

    @click.option("--as-of", metavar="TIME", help=f"Answer as of a past time: {_A_TIME}.")
    @click.option(
        "--require-complete", is_flag=True, help="Fail if partitions are loading, stalled or not observed."
    )
    @click.option(
        "--max-age",
        metavar="DURATION",
        help="Fail if the job's last heartbeat is older than this, such as 30s.",
    )
    @functools.wraps(command)
    def with_asking(
        *arguments: Any, as_of: str | None, require_complete: bool, max_age: str | None, **options: Any
    ) -> Any:
        now = now_ms()
        asking = Asking(
            now=now,
            as_of=None if as_of is None else parse_moment(as_of, now, name="--as-of"),
            is_complete=require_complete,
            max_age_ms=None if max_age is None else parse_duration_ms(max_age, name="--max-age"),
        )
        return command(*arguments, asking=asking, **options)

    return with_asking


# --- output ----------------------------------------------------------------------------------------------

_EXPLAINED: Final = {
    "document": "document: a JSON object with the rows, what they reflect (as_of) and errors",
    "reset-csv": "reset-csv: for kafka-consumer-groups --reset-offsets --from-file",
}


def output_option(*more: Literal["document", "reset-csv"]) -> Option:
    """Return the option `--output` with the formats table, json, csv, and more."""
    return click.option(
        "--output",
        type=click.Choice(["table", "json", "csv", *more]),
        default="table",
        show_default=True,
        help="; ".join(["Output format", *(_EXPLAINED[name] for name in more)]) + ".",
    )


query_options = all_of(config_option, table_root_option, output_option())
answer_options = all_of(config_option, table_root_option, output_option("document"))


def print_answer(
    rows: "pa.Table", output: "Output", about: "AsOf", errors: Mapping[str | None, str] | None = None
) -> None:
    """Print rows under the names of their columns; a document also says what they reflect."""
    from streaming.cli.render import print_document, print_rows

    if output == "document":
        print_document({"as_of": about.document(), "errors": dict(errors or {})}, rows)
    else:
        print_rows(rows, output)
