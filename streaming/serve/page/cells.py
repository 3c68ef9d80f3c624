"""Values as HTML: names, counts, durations and times."""

import re
from collections.abc import Iterable
from typing import Final

from markupsafe import Markup, escape

from streaming.common.escapes import printable, shown_lines
from streaming.common.times import LAST_MS, day_of, in_words, iso
from streaming.expiry.rules import UNKNOWN_RULES
from streaming.serve.page.asked import fingerprint
from streaming.serve.page.notes import MEANINGS

NOTHING: Final = Markup('<span class="none">&ndash;</span>')
"""The cell of an unknown value."""

_SHOWN: Final = 160
_ENDS: Final = (100, 30)
_MARK: Final = 6
_LONGEST_SENTENCE: Final = 2_000
_SENTENCE_ENDS: Final = 700
_MARKED: Final = re.compile(r" #[0-9a-f]{6}\Z")

_TERM: Final = re.compile('<span class="term [a-z]+" [^>]*>([^<]*)</span>')

_GOOD: Final = frozenset({"OK", "Stable", "current"})
_BAD: Final = frozenset({"STOPPED", "STALLED", "REWOUND", "critical", "stalled", "unanswered", "removed"})
_FAIR: Final = frozenset({"WARNING", "warning", "rewind", "behind", "loading", "Assigning", "Reconciling"})


def _html(pattern: str, *values: object) -> Markup:
    """Return HTML with a value in place of each `%s`, escaped unless it is HTML itself. (`Markup.format`
    takes ten times as long, and a page has a thousand cells.)"""
    return Markup(pattern % tuple(map(escape, values)))


def name_text(name: str) -> str:
    """Return a name as text in which two different names look different: characters that cannot be seen are
    escaped, a long name is shortened, and where characters of others look alike, or some are left out, a part
    of its SHA-256 follows; so it does if the name itself ends like that.

    >>> name_text("billing"), name_text("a\\u202eb"), name_text("café")
    ('billing', 'a\\\\u202eb #f04b14', 'café #850f7d')
    """
    shown = printable(name)
    if len(shown) > _SHOWN:
        first, last = _ENDS
        shown = f"{shown[:first]} … {shown[-last:]} ({len(name):,} characters)"
    elif name.isascii() and shown == name and not _MARKED.search(name):
        return shown
    return f"{shown} #{fingerprint(name)[:_MARK]}"


def name(of: str) -> Markup:
    """Return a name whose direction of writing does not affect its surroundings."""
    return _html('<bdi class="name">%s</bdi>', name_text(of))


def link(of: str, address: str) -> Markup:
    return _html('<a href="%s">%s</a>', address, name(of))


def count(number: int | None) -> Markup:
    """Return a number with separators of thousands.

    >>> str(count(1234567)), str(count(-5))
    ('1,234,567', '-5')
    """
    return NOTHING if number is None else escape(f"{number:,}")


def span(seconds: float | None, *, is_at_least: bool = False) -> Markup:
    """Return a duration, with a sign if it may be longer.

    >>> str(span(93_784.5)), str(span(29.2, is_at_least=True))
    ('1 d 2 h', '≥ 29 s')
    """
    if seconds is None or (is_at_least and seconds < 1):
        return NOTHING
    return escape(f"{'≥ ' if is_at_least else ''}{in_words(int(seconds * 1_000))}")


def moment(at: int | None, now: int) -> Markup:
    """Return a moment (ms, UTC): the time of day if it is on the day of `now`, else date and minute."""
    if at is None:
        return NOTHING
    if not 0 <= at <= LAST_MS:
        return escape(f"{at} ms")
    full = iso(at, "seconds")
    text = full[11:19] if day_of(at) == day_of(now) else f"{full[:10]} {full[11:16]}"
    title = f"{full} ({in_words(now - at)} ago)" if at <= now else full
    return _html('<time datetime="%s" title="%s">%s</time>', full, title, text)


def ago(at: int | None, now: int) -> Markup:
    """Return how long ago a moment (ms) was."""
    if at is None or not 0 <= at <= LAST_MS:
        return moment(at, now)
    if now < at < now + 1_000:
        text = "now"
    else:
        text = f"{in_words(now - at)} ago" if at <= now else f"in {in_words(at - now)}"
    full = iso(at, "seconds")
    return _html('<time datetime="%s" title="%s">%s</time>', full, full, text)


def expiry(at: int | None, now: int) -> Markup:
    """Return when an offset expires (ms), relative to `now`."""
    return Markup('<span class="due">due</span>') if at is not None and at <= now else ago(at, now)


def expires(at: int | None, rule: str | None, now: int) -> Markup:
    """Return when an offset expires (ms) and by which rule; `never` if by this rule it does not."""
    is_known = rule is not None and rule not in UNKNOWN_RULES
    when = Markup("never") if at is None and is_known else expiry(at, now)
    return when + term(rule)


def pill(word: str | None) -> Markup:
    """Return a state or status with the colour of its meaning."""
    if not word:
        return NOTHING
    kind = "good" if word in _GOOD else "bad" if word in _BAD else "fair" if word in _FAIR else "plain"
    return _html('<span class="pill %s">%s</span>', kind, word)


def or_nothing(text: str | None) -> Markup:
    return escape(text) if text else NOTHING


def position(topic: str, partition: int, address: str) -> Markup:
    """Return a topic partition, as a link."""
    return _html('<a href="%s">%s<span class="partition">:%s</span></a>', address, name(topic), partition)


def sentence(text: str) -> Markup:
    """Return text of an alert or an error, on one or several lines; the middle of a very long one is left
    out."""
    if len(text) > _LONGEST_SENTENCE:
        text = f"{text[:_SENTENCE_ENDS]} … {text[-_SENTENCE_ENDS:]} ({len(text):,} characters)"
    return _html('<span class="sentence">%s</span>', shown_lines(text))


def small(text: str | None) -> Markup:
    """Return a text of little weight; nothing for none."""
    return _html(' <small class="name">%s</small>', name_text(text)) if text else Markup("")


def term(word: str | None, *, kind: str = "rule") -> Markup:
    """Return a word of `notes.MEANINGS` of little weight, or as a mark (`kind` late); nothing for none. Lists
    say below what it means."""
    if not word:
        return Markup("")
    return _html(' <span class="term %s" title="%s">%s</span>', kind, MEANINGS.get(word, ""), word)


def mark(word: str) -> Markup:
    """Return a word of `notes.MEANINGS` as a mark beside something."""
    return term(word, kind="late")


def terms(cells: Iterable[str]) -> list[tuple[str, str]]:
    """Return the words of `notes.MEANINGS` in some cells, with their meanings.

    >>> [word for word, _ in terms([mark("not complete"), '<b class="term">x</b>'])]
    ['not complete']
    """
    found = {word for cell in cells for word in _TERM.findall(cell)}
    return [(word, meaning) for word, meaning in MEANINGS.items() if word in found]
