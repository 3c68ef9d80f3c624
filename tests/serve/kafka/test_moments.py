"""Which moment a client asks about, by its `client.id`."""

import pytest

from streaming.common.times import DAY_MS, MINUTE_MS, iso
from streaming.model.errors import MisuseError
from streaming.serve.kafka.connection import client_id_in
from streaming.serve.kafka.moments import Moments, NoMoment, fixed_moment

NOW = 1_764_187_410_500  # 2025-11-26T20:03:30.500Z
LONGEST = 32_767


class Clock:
    """Clocks of a test: the time (ms), and the steady one (s)."""

    def __init__(self) -> None:
        self.now, self.steady_s = NOW, 0.0

    def moments(self, as_of: str = "", most_clients: int = 10_000) -> Moments:
        return Moments(
            as_of, clock=lambda: self.now, steady_clock=lambda: self.steady_s, most_clients=most_clients
        )

    def passes(self, ms: int) -> None:
        self.now, self.steady_s = self.now + ms, self.steady_s + ms / 1_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-11-20T14:03:30Z", "2025-11-20T14:03:30.000Z"),
        ("2025-11-20T15:03:30.25+01:00", "2025-11-20T14:03:30.250Z"),
        ("2025-11-20", "2025-11-20T00:00:00.000Z"),
        ("1764187410499", "2025-11-26T20:03:30.499Z"),
        ("20:03:29", "2025-11-26T20:03:29.000Z"),
        ("20:04", "2025-11-25T20:04:00.000Z"),
        ("-2h", "2025-11-26T18:03:00.000Z"),
        ("90s", "2025-11-26T20:02:00.000Z"),
        ("now", "2025-11-26T20:03:00.000Z"),
    ],
)
def test_every_notation_is_understood_and_only_durations_are_rounded(
    clock: Clock, text: str, moment: str
) -> None:
    for found in (clock.moments().of(f"as-of={text}".encode()), clock.moments(text).of(b"any")):
        assert isinstance(found, int)
        assert iso(found) == moment


def test_other_clients_ask_about_now(clock: Clock) -> None:
    moments = clock.moments()
    assert [moments.of(one) for one in (b"", b"adminclient-1", b"AS-OF=-1h", b" as-of=-1h")] == [None] * 4


def test_a_relative_moment_stays_until_the_client_is_silent(clock: Clock) -> None:
    moments, first = clock.moments("-1d"), fixed_moment("-1d", NOW, name="as_of")
    assert moments.of(b"a") == first
    for _ in range(30):
        clock.passes(9 * MINUTE_MS)
        assert moments.of(b"a") == first
    assert moments.of(b"b") == clock.now // MINUTE_MS * MINUTE_MS - DAY_MS
    clock.passes(10 * MINUTE_MS + 1)
    assert moments.of(b"a") == clock.now // MINUTE_MS * MINUTE_MS - DAY_MS


@pytest.mark.parametrize("jump", [-DAY_MS, DAY_MS])
def test_a_clock_that_is_set_moves_no_fixed_moment(clock: Clock, jump: int) -> None:
    moments = clock.moments()
    found = moments.of(b"as-of=-1h")
    clock.now += jump
    assert moments.of(b"as-of=-1h") == found
    assert moments.of(b"as-of=-60m") == clock.now // MINUTE_MS * MINUTE_MS - 60 * MINUTE_MS


def test_of_too_many_clients_the_one_that_asked_longest_ago_is_forgotten(clock: Clock) -> None:
    moments = clock.moments("-1d", most_clients=3)
    first = [moments.of(name) for name in (b"a", b"b", b"c")]
    clock.passes(MINUTE_MS)
    assert moments.of(b"a") == first[0]
    moments.of(b"d")  # in place of b
    assert [moments.of(name) for name in (b"a", b"c")] == [first[0], first[2]]
    assert moments.of(b"b") != first[1]


@pytest.mark.parametrize(
    "text",
    ["", "-", "yesterday", "\0", "grüße 🐢", "2h ago", "-1h" + " " * 200, "9" * LONGEST, "²", "-٣h" * 50],
)
def test_an_invalid_moment_is_said_in_few_words(clock: Clock, text: str) -> None:
    found = clock.moments().of(f"as-of={text}".encode()[:LONGEST])
    assert isinstance(found, NoMoment)
    assert found.why.startswith("client.id as-of=: expected")
    assert len(found.why) < 1_000


@pytest.mark.parametrize("data", [b"as-of=\xff\xfe", b"as-of=\xed\xa0\x80", b"as-of=" + b"\xf0" * 32_000])
def test_bytes_that_are_no_text_are_an_invalid_moment(clock: Clock, data: bytes) -> None:
    assert isinstance(clock.moments().of(data), NoMoment)


def test_a_moment_in_the_future_is_refused_until_it_is_past(clock: Clock) -> None:
    moments, later = clock.moments(), f"as-of={iso(NOW + MINUTE_MS)}".encode()
    refused = moments.of(later)
    assert isinstance(refused, NoMoment)
    assert "which is in the future" in refused.why
    clock.passes(MINUTE_MS)
    assert moments.of(later) == NOW + MINUTE_MS


def test_a_wrong_moment_of_a_listener_is_misuse() -> None:
    with pytest.raises(MisuseError, match=r"serve\.kafka at a:1: as_of: expected a time"):
        fixed_moment("soon", NOW, name="serve.kafka at a:1: as_of")


@pytest.mark.parametrize(
    ("frame", "client_id"),
    [
        (b"", b""),
        (b"\0" * 9, b""),
        (b"\0" * 8 + b"\xff\xff", b""),
        (b"\0" * 8 + b"\x00\x03abcdef", b"abc"),
        (b"\0" * 8 + b"\x7f\xffab", b"ab"),
    ],
)
def test_the_client_id_is_found_in_any_frame(frame: bytes, client_id: bytes) -> None:
    assert client_id_in(frame) == client_id
