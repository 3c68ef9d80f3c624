"""Options shared by commands, each defined once, and the settings and tables that they select."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from streaming.cli.layout.forms import Form
from streaming.cli.output import FORMATS, Format, warn
from streaming.common.times import day_of, from_ms, is_now, iso, now_ms, parse_duration_ms, parse_moment
from streaming.model.errors import MisuseError
from streaming.model.suggestions import did_you_mean, nearest
from streaming.settings.clusters import settings_of_cluster, with_brokers
from streaming.settings.kinds import SERVERS, are_servers
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.brokers.broker import Broker
    from streaming.cli.render import TableStyle
    from streaming.common.topics import TopicPartitions
    from streaming.queries.as_of import AsOf
    from streaming.queries.names import Missing, NameSearch

Output = Format | Literal["document"]
Command = Callable[..., Any]
Option = Callable[[Command], Command]

_A_TIME: Final = "2h (ago), now, 02:34, a date, ISO 8601 or epoch milliseconds; UTC without a zone"


def all_of(*options: Option) -> Option:
    """Combine several options; the help shows them in this order."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


# --- brokers, settings and tables ------------------------------------------------------------------------


def _brokers(_context: click.Context, _option: click.Parameter, servers: str | None) -> str | None:
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

source_topic_option = click.option(
    "--topic", metavar="TOPIC", help="The topic to read.  [default: __consumer_offsets]"
)

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file; overrides the defaults (conf/offsetlake.toml).",
)
table_root_option = click.option(
    "--table-root", metavar="DIR|URL", help="Folder or URL of the tables.  [default: warehouse]"
)
cluster_option = click.option(
    "--cluster",
    metavar="NAME",
    help="A cluster of [[serve.clusters]] in the settings; the command reads the table_root of this cluster.",
)
table_options = all_of(table_root_option, cluster_option)
log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the lines on standard error.",
)


_SETTINGS: Final = {
    "bootstrap_server": "source.bootstrap_servers",
    "topic": "source.topic",
    "table_root": "tables.root",
    "checkpoint": "job.checkpoint",
    "trigger": "job.trigger",
    "master": "spark.master",
}
"""Options that override settings."""


def settings_of(
    config: Path | None,
    command_config: Path | None = None,
    *,
    cluster: str | None = None,
    **options: str | None,
) -> Settings:
    """Read the settings, overridden by the given options of `_SETTINGS` and by the `table_root` of a cluster
    (None: not given)."""
    if cluster is not None and options.get("table_root") is not None:
        raise MisuseError("--cluster and --table-root: expected one of them, found both. Leave one out.")
    given = {_SETTINGS[name]: value for name, value in options.items()}
    settings = read_settings(config, given, os.environ)
    if cluster is not None:
        settings = settings_of_cluster(settings, cluster, where="--cluster")
        servers = options.get("bootstrap_server")
        if servers is not None:
            settings = with_brokers(settings, servers)
        elif command_config is not None:
            raise MisuseError(
                "--command-config and --cluster: expected --bootstrap-server beside them, found none. "
                "[source] bootstrap_servers is not about the clusters of [[serve.clusters]]."
            )
    return with_command_config(settings, command_config)


def with_command_config(settings: Settings, file: Path | None) -> Settings:
    """Override client settings by a properties file for Kafka's clients."""
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
    held = settings.tables
    return Tables(held.root, held.storage_options, held.complete_within_ms)


def broker_of(settings: Settings) -> "Broker":
    """Return a client for the brokers in the settings; prints client settings that are unknown."""
    from streaming.brokers.broker import Broker
    from streaming.settings.client_names import unknown_names

    warn(unknown_names(settings.source.client))
    return Broker(settings.source)


# --- questions -------------------------------------------------------------------------------------------


def group_options(command: Command) -> Command:
    """Add the argument GROUP... and the option `--group`; the command gets both as `groups`."""

    @click.argument("named", nargs=-1, metavar="[GROUP]...")
    @click.option(
        "-g",
        "--group",
        "groups",
        multiple=True,
        help="Only this group, or groups that match a pattern such as 'bill*' (* and ?); repeatable. "
        "'' is the empty group id.",
    )
    @functools.wraps(command)
    def with_groups(*arguments: Any, named: tuple[str, ...], groups: tuple[str, ...], **options: Any) -> Any:
        return command(*arguments, groups=(*named, *groups), **options)

    return with_groups


topic_option = click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="T[:0,1]",
    help="Only this topic, or topics that match a pattern; with :0,1 only partitions 0 and 1; repeatable.",
)
all_groups_option = click.option("--all-groups", is_flag=True, help="All groups, as without --group.")
since_option = click.option("--since", metavar="TIME", help=f"Only changes since this time: {_A_TIME}.")
until_option = click.option("--until", metavar="TIME", help="Only changes until this time.")
within_option = click.option(
    "--within",
    metavar="DURATION",
    help="Only offsets that expire within this time, such as 24h, and offsets with unknown expiry.",
)


def refuse_both(groups: Sequence[str], *, all_groups: bool) -> None:
    """Raise `MisuseError` if groups are named together with `--all-groups`."""
    if groups and all_groups:
        raise MisuseError("--group and --all-groups: expected one of them, found both. Leave one out.")


def topics_of(texts: Iterable[str]) -> list["TopicPartitions"]:
    from streaming.common.topics import TopicPartitions

    return [TopicPartitions.parse(text, name="--topic") for text in texts]


def words_of(
    texts: Iterable[str], known: Sequence[str], *, name: str, comparable: Callable[[str], str] = str.lower
) -> list[str]:
    """Parse comma-separated words, ignoring case and surrounding blanks, and return them as in `known`.
    Raises `MisuseError` for an unknown word."""
    as_known = {comparable(word): word for word in known}
    words = [word.strip() for text in texts for word in text.split(",")]
    for word in words:
        if comparable(word) not in as_known:
            meant = did_you_mean(nearest(word, known))
            raise MisuseError(f"{name}: expected one of {', '.join(known)}; found {word!r}.{meant}")
    return [as_known[comparable(word)] for word in words]


def moment_of(text: str | None, now: int, *, name: str) -> datetime | None:
    """Parse the time in an option; if it has no zone, print its interpretation on standard error."""
    if text is None:
        return None
    typed = parse_moment(text, now, name=name)
    if typed.lacks_zone:
        understood = iso(typed.ms, "milliseconds" if typed.ms % 1_000 else "seconds")
        warn([f"{name} {text}: {understood} (UTC)"])
    return from_ms(typed.ms)


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Requirements for an answer: its moment, completeness and freshness.

    `as_of` is None for the present, also with `--as-of now`: the newest batches count even if the job's clock
    is ahead of this machine's. `has_as_of`: the option is given.
    """

    now: int
    as_of: datetime | None
    has_as_of: bool
    is_complete: bool
    max_age_ms: int | None

    def moment(self, name: str, text: str | None) -> datetime | None:
        return moment_of(text, self.now, name=name)

    def since(self, text: str | None) -> datetime | None:
        """Parse `--since`; raises `MisuseError` for a time after `--as-of`: there is nothing between them."""
        moment = self.moment("--since", text)
        if moment and self.as_of and moment > self.as_of:
            raise MisuseError(f"--since: expected a time before --as-of, found {text}, which is after it.")
        return moment

    def until(self, text: str | None) -> datetime | None:
        """Parse `--until`; None: up to the newest batch."""
        return None if text is None or is_now(text) else self.moment("--until", text)

    def checked(self, about: "AsOf", search: "NameSearch | None" = None) -> "AsOf":
        """Return the state of the tables for an answer to a search; raises `IncompleteError` if it does not
        meet the requirements."""
        about = about.of_all_groups() if search is not None and search.has_patterns else about
        with _naming("--require-complete"):
            about.check(is_complete=self.is_complete, may_be_silent=self.max_age_ms is not None)
        with _naming("--max-age"):
            about.check(max_age_ms=self.max_age_ms)
        return about


@contextmanager
def _naming(option: str) -> Iterator[None]:
    """Prefix an `IncompleteError` with the option that requires completeness."""
    from streaming.queries.as_of import IncompleteError

    try:
        yield
    except IncompleteError as error:
        raise IncompleteError(f"{option}: {error}") from error


def asking_options(command: Command) -> Command:
    """Add `--as-of`, `--require-complete` and `--max-age`; the command gets them as `asking`."""

    @click.option("--as-of", metavar="TIME", help=f"Show the state at a past time: {_A_TIME}.")
    @click.option(
        "--require-complete", is_flag=True, help="Fail unless the data is complete (docs/tables.md)."
    )
    @click.option(
        "--max-age",
        metavar="DURATION",
        help="Fail if the last heartbeat of the job is older than this, such as 30s, or as far ahead.",
    )
    @functools.wraps(command)
    def with_asking(
        *arguments: Any, as_of: str | None, require_complete: bool, max_age: str | None, **options: Any
    ) -> Any:
        now = now_ms()
        asking = Asking(
            now=now,
            as_of=None if as_of is None or is_now(as_of) else moment_of(as_of, now, name="--as-of"),
            has_as_of=as_of is not None,
            is_complete=require_complete,
            max_age_ms=None if max_age is None else parse_duration_ms(max_age, name="--max-age"),
        )
        return command(*arguments, asking=asking, **options)

    return with_asking


# --- output ----------------------------------------------------------------------------------------------

_EXPLAINED: Final = {
    "document": "document: a JSON object with rows, state of the tables (as_of), errors and missing names",
    "reset-csv": "reset-csv: for kafka-consumer-groups --reset-offsets --from-file",
}


def output_option(*more: Literal["document", "reset-csv"]) -> Option:
    """Return the option `--output` with the formats table, json, csv, and more, and the options for tables.

    The command gets only `output`; `print_listed` reads the others.
    """
    return all_of(
        click.option(
            "--output",
            type=click.Choice([*FORMATS, *more]),
            default="table",
            show_default=True,
            help="; ".join(["Output format", *(_EXPLAINED[name] for name in more)]) + ".",
        ),
        _view_option(
            "--wide",
            "Tables on a terminal: print the same columns and full times as in a pipe. "
            "No effect on other formats.",
        ),
        _view_option(
            "--utc",
            "Tables on a terminal: print full times; all times are UTC. No effect on other formats.",
        ),
    )


def _view_option(name: str, text: str) -> Option:
    """Return a flag for tables on a terminal; the context keeps it for `_view`."""

    def keep(context: click.Context, _: click.Parameter, is_given: bool) -> None:
        context.meta[name] = is_given

    return click.option(name, is_flag=True, expose_value=False, callback=keep, help=text)


def refuse_output_options(option: str, output: Output) -> None:
    """Raise `MisuseError` if `--output`, `--wide` or `--utc` is given beside an option that prints no
    table."""
    given = click.get_current_context().meta
    found = [name for name in ("--wide", "--utc") if given[name]]
    if output != "table" or found:
        raise MisuseError(
            f"{option}: expected neither --output, --wide nor --utc beside it, found "
            f"{found[0] if found else f'--output {output}'}. They are about tables, and it prints none."
        )


def _view() -> "TableStyle":
    """Return the table style of the running command on a terminal."""
    from streaming.cli.render import TableStyle

    given = click.get_current_context().meta
    return TableStyle(is_wide=given["--wide"], today=None if given["--utc"] else day_of(now_ms()))


query_options = all_of(config_option, table_options, output_option())
answer_options = all_of(config_option, table_options, output_option("document"))


def print_listed(rows: "pa.Table", output: Format, form: Form) -> None:
    """Print rows; a table has the columns of `form`, other formats all columns under their names."""
    from streaming.cli.render import print_rows

    print_rows(rows, output, form, _view())


def print_answer(
    rows: "pa.Table",
    output: Output,
    form: Form,
    about: "AsOf",
    errors: Mapping[str | None, str] | None = None,
    missing: "Missing | None" = None,
) -> None:
    """Print rows as `print_listed` does; a document also contains the state that they reflect, groups with
    errors, and names that were not found."""
    from streaming.cli.render import print_document
    from streaming.queries.names import Missing

    if output == "document":
        absent = (missing or Missing()).document()
        beside = {"as_of": about.document(), "errors": dict(errors or {}), "missing": absent}
        print_document(beside, rows)
    else:
        print_listed(rows, output, form)
