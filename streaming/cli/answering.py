"""Queries of commands: names are resolved, and remarks are printed besides the rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self, TypeVar

from streaming.cli.layout.forms import Form
from streaming.cli.options import Asking, Output, print_answer, tables_of, topics_of
from streaming.cli.output import print_footer, warn, write_for_programs
from streaming.common.times import iso, to_ms
from streaming.settings.model import Settings

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming.common.topics import TopicPartitions
    from streaming.queries.as_of import AsOf
    from streaming.queries.bound.lag import SnapshotLagQueries
    from streaming.queries.bound.offsets import SnapshotQueries
    from streaming.queries.names import Missing, NameSearch, Past
    from streaming.tables.snapshot import Among, Snapshot

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Question:
    """The query of a command: the given names, and the requirements for the answer.

    Names are looked up `among` these, and with `has_assigned` among assigned partitions, too.
    """

    settings: Settings
    asking: Asking
    groups: tuple[str, ...] = ()
    topics: "tuple[TopicPartitions, ...]" = ()
    among: "Among" = "live"
    has_assigned: bool = False

    @classmethod
    def of(
        cls,
        settings: Settings,
        asking: Asking,
        groups: tuple[str, ...] = (),
        topics: tuple[str, ...] = (),
        *,
        among: "Among" = "live",
        has_assigned: bool = False,
    ) -> Self:
        return cls(
            settings=settings,
            asking=asking,
            groups=groups,
            topics=tuple(topics_of(topics)),
            among=among,
            has_assigned=has_assigned,
        )

    def ask(self, answer: "Callable[[AskedSnapshot], T]") -> T:
        """Return the result of `answer` for one snapshot of the tables: everything to be printed.

        `answer` must not print: it is called again when files that it needed are gone.
        """
        return tables_of(self.settings).ask(
            lambda at: answer(AskedSnapshot(question=self, at=at)), as_of=to_ms(self.asking.as_of)
        )


@dataclass(frozen=True, kw_only=True)
class AskedSnapshot:
    """A snapshot with the question asked of it."""

    question: Question
    at: "Snapshot"

    @cached_property
    def offsets(self) -> "SnapshotQueries":
        from streaming.queries.bound.offsets import SnapshotQueries

        return SnapshotQueries(self.at)

    @cached_property
    def lag(self) -> "SnapshotLagQueries":
        from streaming.lag.health_rules import HealthRules
        from streaming.queries.bound.lag import SnapshotLagQueries

        return SnapshotLagQueries(self.at, rules=HealthRules.of(self.question.settings.health))

    @cached_property
    def search(self) -> "NameSearch":
        """The given names, resolved in the snapshot."""
        from streaming.queries.names import NameSearch

        question = self.question
        names = partial((self.lag if question.has_assigned else self.offsets).names, among=question.among)
        return NameSearch(question.groups, question.topics, names, _past(self.offsets))

    @property
    def groups(self) -> "list[str] | None":
        """The selected groups; None: all."""
        return self.search.groups

    @property
    def topics(self) -> "list[TopicPartitions]":
        """The selected topics; empty: all."""
        return self.search.topics

    def until(self, moment: datetime | None) -> int:
        """Return the end of a time in ms; None: now, and all batches."""
        return self.lag.end(self.question.asking.now) if moment is None else to_ms(moment)

    def start_of_history(self, since: int) -> list[str]:
        """Return a remark if changes since a moment (ms) are not kept."""
        return start_of_history(self.at.whole_after(since), self.at.starts_after(since))

    def checked(self, about: "AsOf") -> "AsOf":
        """Return the state of the tables for an answer; raises `IncompleteError` if it does not meet the
        requirements."""
        return self.question.asking.checked(about, self.search)

    def answered(self, rows: "pa.Table", about: "AsOf", *, nothing: str, when: str = "") -> "Found":
        """Return everything about an answer besides its rows: `nothing` and `when` describe in words the data
        that named groups without rows lack. Raises `IncompleteError` if the requirements are not met."""
        about = self.checked(about)
        errors = about.loading_of(self.groups)
        missing = self.search.missing(rows, errors, nothing=nothing, when=when, is_partial=about.is_partial)
        return Found(about=about, missing=missing, errors=errors)


def start_of_history(whole_since: int | None, starts_at: int | None) -> list[str]:
    """Return a remark about the moments (ms) from which on all changes, or any, are kept (None: all that were
    requested)."""
    if whole_since is not None:
        start = iso(whole_since)
        return [f"history starts at {start}: before, only the removal of offsets is kept ([tables] history)"]
    return [] if starts_at is None else [f"history starts at {iso(starts_at)}"]


def _past(queries: "SnapshotQueries") -> "Past | None":
    """Return the words for names that did not exist at a past moment; None: the question is about the
    present."""
    from streaming.queries.names import Past

    def appears(group: str) -> str | None:
        at = queries.appears(group)
        return None if at is None else iso(at)

    return Past(iso(queries.at.moment), appears) if queries.at.is_past else None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The state of the tables behind an answer, the names that were not found, and the groups with errors."""

    about: "AsOf"
    missing: "Missing"
    errors: Mapping[str | None, str] = field(default_factory=dict)

    def with_sampled_ends(self, rows: "pa.Table", max_age_ms: int) -> Self:
        """Return a copy for rows with the lag of samples; see `AsOf.with_sampled_ends`."""
        return replace(self, about=self.about.with_sampled_ends(rows, max_age_ms))

    def with_log_ends(self, asked_at: int) -> Self:
        """Return a copy for rows with log ends requested from brokers at a moment (ms)."""
        return replace(self, about=self.about.with_log_ends(asked_at))

    def show(
        self,
        rows: "pa.Table",
        output: Output,
        form: Form,
        *,
        errors: Mapping[str | None, str] | None = None,
        with_line: bool = True,
    ) -> None:
        """Print rows, and for a table the state that they reflect, on standard error (`with_line`). `errors`
        replace `self.errors` in a document."""
        print_answer(rows, output, form, self.about, errors or self.errors, self.missing)
        if with_line and output == "table":
            print_footer([self.about])

    def why_no_lag(self, output: Output) -> list[str]:
        """Return a remark about an unknown lag, where no line below a table contains it."""
        why = self.about.why_no_lag
        return [f"the lag is not known, because {why}"] if why and output != "table" else []

    def report(self, remarks: Iterable[str] = ()) -> int:
        """Print remarks on standard error. Return the exit code: 1 if something is still loading, or a name
        is not found or has an error."""
        warn([*self.about.caveats(), *remarks])
        warn(f"group {group!r}: {error}" for group, error in self.errors.items())
        warn(self.missing.sentences)
        return 1 if self.errors or self.missing or self.about.is_loading else 0


# --- positions -------------------------------------------------------------------------------------------


def recreated_topics(rows: "pa.Table") -> Iterator[str]:
    """Yield remarks about offsets (rows with `of_recreated_topic`) of topics that were recreated since."""
    from streaming.lag.restoring import RECREATED
    from streaming.queries.reset_csv import MOST_NAMED, doubts, with_warning

    found = rows.filter(rows["of_recreated_topic"])
    return doubts(with_warning(found, RECREATED), most=MOST_NAMED)


def write_reset_csv(positions: "pa.Table", *, one_group: bool) -> tuple[list[str], bool]:
    """Write positions (schema `RESTORED`) as a file for `kafka-consumer-groups`. Return remarks about them,
    and whether the file has all of them."""
    from streaming.queries.reset_csv import doubts, names_left_out, reset_lines

    lines = list(reset_lines(positions, one_group=one_group))
    write_for_programs(lines)
    remarks = [*doubts(positions), *names_left_out(positions, one_group=one_group)]
    return remarks, len(lines) == len(positions)
