"""Frames of strangers: whatever their bytes, one error; whatever they claim, memory by what they hold."""

import gc
import random
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from message_oracle import damaged
from message_strategies import REQUESTS, SIZE_BYTES, body_of, request_frames

from decoders import DecodeError
from decoders.formats.wire import VARINT, ReadsLeft
from decoders.messages import APIS, Api, prepare, read_request, request_bytes
from decoders.messages.api import REQUEST_HEADERS
from decoders.rows.reference import MESSAGE_READS

MEGABYTE = 1_000_000
MOST_BYTES_A_BYTE = 130  # of memory, for each of a frame


def check(frame: bytes) -> None:
    """Read a frame: either the reference reads the same, or it refuses it too."""
    try:
        request = read_request(frame)
    except DecodeError:
        return
    stream = ReadsLeft(frame, 10**6)
    api = APIS[request.api_key]
    header = REQUEST_HEADERS[api.request_header(request.api_version)].parse_stream(stream)
    assert request[:3] == (header.requestApiKey, header.requestApiVersion, header.correlationId)
    assert request.client_id == (header.clientId or "")
    if request.body is not None:
        assert request.body == api.request_layout(request.api_version).parse_stream(stream)


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    check(data)


@given(st.sampled_from(REQUESTS), st.binary(max_size=120))
def test_random_bytes_behind_a_known_api_and_version(request: tuple[Api, int], data: bytes) -> None:
    api, version = request
    check(api.key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\7\0\1c" + data)


@given(request_frames(), st.integers(0, 2**32))
def test_requests_with_damage(frame: bytes, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        check(damaged(frame, rng) or b"")


@given(request_frames())
def test_requests_cut_at_every_byte(frame: bytes) -> None:
    for size in range(min(len(frame), 300)):
        check(frame[:size])


@given(st.data())
@pytest.mark.parametrize("name", sorted(api.name for api in APIS.values()))
def test_the_bytes_of_every_api(name: str, data: st.DataObject) -> None:
    api, version = data.draw(st.sampled_from([request for request in REQUESTS if request[0].name == name]))
    frame = request_bytes(api.key, version, 1, "", data.draw(body_of(api.request_layout(version))))[
        SIZE_BYTES:
    ]
    changed = bytearray(frame)
    place = data.draw(st.integers(0, len(frame) - 1))
    changed[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    check(bytes(changed))


# --- what it takes -----------------------------------------------------------------------------------------

HEADERS = {
    "groups": bytes.fromhex("0009 0009 00000001 ffff 00"),
    "topics of Metadata": bytes.fromhex("0003 000c 00000001 ffff 00"),
    "names": bytes.fromhex("0010 0005 00000001 ffff 00"),
}
SMALLEST = {  # the smallest element that there is
    "groups": bytes.fromhex("01 00 ffffffff 00 00"),
    "topics of Metadata": bytes(16) + bytes.fromhex("00 00"),
    "names": b"\1",
}


def peak_of(frame: bytes) -> int:
    """The memory that reading a frame takes at most."""
    prepare()
    tracemalloc.start()
    try:
        read_request(frame)
    except DecodeError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def test_an_error_keeps_no_frame_until_the_next_garbage_collection() -> None:
    frame = HEADERS["groups"] + bytes(MEGABYTE)
    gc.disable()
    try:
        before = sys.getrefcount(frame)
        with pytest.raises(DecodeError, match="expected a length of 0 or more for groups"):
            read_request(frame)
        assert sys.getrefcount(frame) == before
    finally:
        gc.enable()


@pytest.mark.parametrize("claimed", [2**31 - 2, 10 * MEGABYTE, MEGABYTE])
@pytest.mark.parametrize("kind", HEADERS)
def test_nothing_is_reserved_for_what_a_frame_claims(kind: str, claimed: int) -> None:
    frame = HEADERS[kind] + VARINT.build(claimed) + SMALLEST[kind] * 9
    assert peak_of(frame) < 100_000
    with pytest.raises(DecodeError, match=f"expected {claimed - 1} bytes for "):
        read_request(frame)


@pytest.mark.parametrize("kind", HEADERS)
def test_many_small_things_take_what_the_frame_allows(kind: str) -> None:
    count = 60_000 // len(SMALLEST[kind])
    frame = HEADERS[kind] + VARINT.build(count + 1) + SMALLEST[kind] * count
    for data in (frame, frame + b"\1\0\0", frame[:-1]):
        assert peak_of(data) < MOST_BYTES_A_BYTE * len(data)


def test_texts_and_bytes_are_held_against_what_is_left() -> None:
    start = bytes.fromhex("002f 0000 00000001")
    for client_id in ("7fff", "0010"):
        frame = start + bytes.fromhex(client_id) + b"abc"
        assert peak_of(frame) < 100_000
        with pytest.raises(
            DecodeError, match=f"expected {int(client_id, 16)} bytes for clientId at byte 10, found 3"
        ):
            read_request(frame)


def test_a_large_frame_is_searched_up_to_a_point_and_says_so() -> None:
    count = 100_000
    frame = HEADERS["groups"] + VARINT.build(count + 1) + SMALLEST["groups"] * (count - 1) + b"\1"
    with pytest.raises(
        DecodeError, match=r"was looked for up to groups\[\d+\]\.\w+ at byte \d+ of \d+, not further"
    ):
        read_request(frame)
    assert MESSAGE_READS <= 500  # some 5 us each: a stranger must not make us search for long
