"""What the commands share: options, and the tables they speak of."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.common.times import parse_duration_ms, parse_moment
from streaming.model.progress import now_ms
from streaming.settings.model import Settings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.queries.completeness import AsOf

Command = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a question is meant: as of when, and what its answer must be at least."""

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


def config_option(command: Command) -> Command:
    """Add `--config`."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Settings file; holds what differs from the defaults (conf/offsetlake.toml).",
    )(command)


def query_options(command: Command) -> Command:
    """Add `--config`, `--table-root` and `--output`."""
    return _output_options(["table", "json", "csv"], "How to print the rows.")(command)


def answer_options(command: Command) -> Command:
    """Add what `query_options` adds, with the output `document`."""
    return _output_options(
        ["table", "json", "csv", "document"],
        "How to print the rows; document: a JSON object with what they reflect (as_of), errors and rows.",
    )(command)


def _output_options(outputs: list[str], text: str) -> Callable[[Command], Command]:
    def with_options(command: Command) -> Command:
        command = click.option(
            "--output", type=click.Choice(outputs), default="table", show_default=True, help=text
        )(command)
        command = click.option(
            "--table-root", metavar="DIR|URL", help="Where the tables are.  [default: warehouse]"
        )(command)
        return config_option(command)

    return with_options


def print_answer(
    rows: "pa.Table", output: Any, about: "AsOf", errors: Mapping[str | None, str] | None = None
) -> None:
    """Print rows under the names of their columns; a document also says what they reflect."""
    from streaming.cli.render import print_document, print_rows

    if output == "document":
        print_document({"as_of": about.document(), "errors": dict(errors or {})}, rows)
    else:
        print_rows(rows, output)


def asking_options(command: Command) -> Command:
    """Add `--as-of`, `--require-complete` and `--max-age`; the command gets them as `asking`."""

    @click.option(
        "--as-of",
        metavar="TIME",
        help="Answer as of a past moment: ISO 8601 (UTC unless it says otherwise), or -2h for two hours ago.",
    )
    @click.option(
        "--require-complete", is_flag=True, help="Fail if partitions are loading, stalled or not observed."
    )
    @click.option(
        "--max-age", metavar="DURATION", help="Fail if the job has given no sign of life for longer, as 30s."
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


group_option = click.option(
    "--group", "groups", multiple=True, help="Only this group; repeatable. '' is the empty group id."
)
command_config_option = click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file with Kafka client settings, as Kafka's own tools take it (SASL, TLS).",
)


def broker_options(command: Command) -> Command:
    """Add `--bootstrap-server` and `--command-config`."""
    command = command_config_option(command)
    return click.option("--bootstrap-server", metavar="HOST:PORT[,...]", help="Brokers to ask.")(command)


def with_command_config(settings: Settings, file: Path | None) -> Settings:
    """Return the settings with those of a properties file for Kafka's clients laid over them."""
    from streaming.settings.properties import read_properties
    from streaming.settings.secrets import resolved_client

    if file is None:
        return settings
    client = {**settings.source.client, **resolved_client(read_properties(file), where=str(file))}
    client.pop("bootstrap.servers", None)
    return replace(settings, source=replace(settings.source, client=client))


def tables_of(table_root: str | None, config: Path | None) -> Tables:
    """Return the tables that the options speak of."""
    settings = read_settings(config, {"tables.root": table_root}).tables
    return Tables(settings.root, settings.storage_options)
