"""Messages of columns: their bytes are those that the writer of rows writes, in pieces of any size."""

import base64
import random
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from decoders.formats.java_values import decode_uuid
from decoders.messages import APIS, Columns, UnwritableError, response_bytes, response_pieces

LIST_GROUPS, OFFSET_FETCH, METADATA, API_VERSIONS = 16, 9, 3, 18

Topics = list[dict[str, Any]]

ALL_OF_THEM = [(key, version) for key in (LIST_GROUPS, OFFSET_FETCH) for version in APIS[key].versions]


def sent(
    key: int,
    version: int,
    body: Mapping[str, Any],
    piece_bytes: int = 1 << 20,
    errors: dict[int, int] | None = None,
) -> bytes:
    """A response of columns, whose size was known before."""
    pieces = response_pieces(key, version, 7, dict(body), piece_bytes=piece_bytes, errors=errors)
    data = b"".join(pieces)
    assert len(data) == pieces.size
    return data


# --- the same message in rows and in columns ---------------------------------------------------------------


def random_topics(rng: random.Random, texts: list[str | None]) -> Topics:
    return [
        {
            "name": rng.choice(["", "orders", "ö" * 70]),
            "topicId": decode_uuid(rng.randbytes(16)),
            "partitions": [
                {
                    "partitionIndex": rng.randrange(-1, 2**31),
                    "committedOffset": rng.randrange(-(2**63), 2**63),
                    "committedLeaderEpoch": rng.randrange(-1, 5),
                    "metadata": rng.choice(texts),
                    "errorCode": rng.randrange(-1, 100),
                }
                for _ in range(rng.choice([0, 1, 2, 3, 130]))
            ],
        }
        for _ in range(rng.choice([0, 1, 2, 3]))
    ]


def of_topics(topics: Topics, counts: list[int] | None) -> Columns:
    partitions = [partition for topic in topics for partition in topic["partitions"]]

    def numbers(name: str) -> Any:
        return np.array([partition[name] for partition in partitions], np.int64)

    ids = b"".join(bytes_of_id(topic["topicId"]) for topic in topics)
    return Columns(
        {
            "name": pa.array([topic["name"] for topic in topics], pa.string()),
            "topicId": np.frombuffer(ids, "V16"),
            "partitions": Columns(
                {
                    "partitionIndex": numbers("partitionIndex").astype(np.int32),
                    "committedOffset": numbers("committedOffset"),
                    "committedLeaderEpoch": numbers("committedLeaderEpoch"),
                    "metadata": pa.array([partition["metadata"] for partition in partitions], pa.string()),
                    "errorCode": numbers("errorCode").astype(np.int16),
                },
                np.array([len(topic["partitions"]) for topic in topics], np.int32),
            ),
        },
        None if counts is None else np.array(counts),
    )


def bytes_of_id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


TEXTS: dict[str, list[str | None]] = {
    "none": [""],
    "short": ["", "m", None, "né ☃"],
    "of all sizes": [None, "", *("x" * size for size in (125, 126, 127, 128, 16_382, 16_383, 32_767))],
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("version", APIS[OFFSET_FETCH].versions)
def test_offset_fetch_of_columns_is_that_of_rows(version: int, texts: list[str | None]) -> None:
    rng = random.Random(version)
    for piece_bytes in (1, 7, 1_000) if len(texts) < 5 else (1_000, 40_000, 1 << 20):
        groups = [
            {"groupId": f"g{n}" * n, "topics": random_topics(rng, texts), "errorCode": n} for n in range(4)
        ]
        if version < 8:
            topics = groups[-1]["topics"]
            rows = {"topics": topics, "errorCode": 3}
            columns = {"topics": of_topics(topics, None), "errorCode": 3}
        else:
            together = [topic for group in groups for topic in group["topics"]]
            fields = {
                "groupId": pa.array([group["groupId"] for group in groups]),
                "topics": of_topics(together, [len(group["topics"]) for group in groups]),
                "errorCode": np.arange(4),
            }
            rows = {"groups": groups, "throttleTimeMs": 5}
            columns = {"groups": Columns(fields), "throttleTimeMs": 5}
        of_rows, of_columns = dict[int, int](), dict[int, int]()
        expected = response_bytes(OFFSET_FETCH, version, 7, rows, errors=of_rows)
        assert sent(OFFSET_FETCH, version, columns, piece_bytes, of_columns) == expected
        assert of_columns == of_rows


@pytest.mark.parametrize("version", APIS[LIST_GROUPS].versions)
def test_groups_of_columns_are_those_of_rows(version: int) -> None:
    names = ["", "billing", "ö", "\0", "x" * 300] * 30
    rows = [
        {"groupId": name, "protocolType": "consumer", "groupState": "Stable", "groupType": name}
        for name in names
    ]
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
    for group_type in (pa.binary(), pa.large_string(), pa.string_view()):
        given = columns | {"groupType": columns["groupType"].cast(group_type)}
        assert sent(LIST_GROUPS, version, {"groups": Columns(given)}) == response_bytes(
            LIST_GROUPS, version, 7, {"groups": rows}
        )


def test_slices_of_columns_and_fields_left_out() -> None:
    names = pa.array(["a", "bb", "ccc", "dddd"]).slice(1, 2)
    partitions = Columns(
        {"partitionIndex": np.arange(9)[4:6], "committedOffset": np.arange(9)[::3][:2], "metadata": names},
        np.array([2]),
    )
    topics = Columns({"name": pa.array(["t"]), "partitions": partitions})
    rows = [
        {"partitionIndex": 4, "committedOffset": 0, "metadata": "bb"},
        {"partitionIndex": 5, "committedOffset": 3, "metadata": "ccc"},
    ]
    expected = response_bytes(OFFSET_FETCH, 5, 7, {"topics": [{"name": "t", "partitions": rows}]})
    assert sent(OFFSET_FETCH, 5, {"topics": topics}) == expected


def test_nulls_of_any_buffer_take_no_bytes() -> None:
    metadata = pa.Array.from_buffers(
        pa.binary(),
        2,
        [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 4], np.int32)), pa.py_buffer(b"abcd")],
    )
    assert metadata.to_pylist() == [None, b"d"]
    numbers = np.arange(2)
    partitions = Columns(
        {"partitionIndex": numbers, "committedOffset": numbers, "metadata": metadata}, np.array([2])
    )
    topics = Columns({"name": pa.array(["t"]), "partitions": partitions})
    rows = [
        {"partitionIndex": 0, "committedOffset": 0, "metadata": None},
        {"partitionIndex": 1, "committedOffset": 1, "metadata": "d"},
    ]
    expected = response_bytes(OFFSET_FETCH, 7, 7, {"topics": [{"name": "t", "partitions": rows}]})
    assert sent(OFFSET_FETCH, 7, {"topics": topics}) == expected


@pytest.mark.parametrize(("key", "version"), ALL_OF_THEM)
def test_a_body_without_columns_is_written_too(key: int, version: int) -> None:
    body: dict[str, Any] = {"groups": [], "topics": []}
    assert sent(key, version, body) == response_bytes(key, version, 7, body)


def test_tagged_fields_of_the_message_are_written() -> None:
    api_keys = {"apiKey": np.array([3]), "minVersion": np.array([0]), "maxVersion": np.array([13])}
    expected = {"apiKeys": [{"apiKey": 3, "minVersion": 0, "maxVersion": 13}], "finalizedFeaturesEpoch": 4}
    columns = {"apiKeys": Columns(api_keys), "finalizedFeaturesEpoch": 4}
    assert sent(API_VERSIONS, 3, columns) == response_bytes(API_VERSIONS, 3, 7, expected)


# --- what cannot be written --------------------------------------------------------------------------------

GROUPS = {
    "groupId": pa.array(["g", "h"]),
    "protocolType": pa.array(["", ""]),
    "groupState": pa.array(["", ""]),
    "groupType": pa.array(["", ""]),
}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (
            {"groupId": None},
            r"ListGroups response v5 cannot be written: expected a column for groups.groupId, found none",
        ),
        ({"groupId": pa.array(["g", None])}, "expected no nulls for groups.groupId"),
        ({"protocolType": pa.array(["g"])}, "expected 2 rows for groups.protocolType, found 1"),
        (
            {"protocolType": np.array(["g", "h"])},
            "expected an Arrow array for groups.protocolType, found ndarray",
        ),
        (
            {"protocolType": pa.array(["g", "x" * 32_768])},
            "expected at most 32767 bytes for groups.protocolType, found 32768",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_named(wrong: dict[str, Any], why: str) -> None:
    columns = {name: column for name, column in (GROUPS | wrong).items() if column is not None}
    with pytest.raises(UnwritableError, match=why):
        response_pieces(LIST_GROUPS, 5, 7, {"groups": Columns(columns)})


@pytest.mark.parametrize(
    ("topics", "why"),
    [
        (
            Columns({"name": pa.array(["a"]), "partitions": pa.array([1])}),
            "expected Columns with counts for topics.partitions",
        ),
        (
            Columns({"name": pa.array(["a"]), "partitions": Columns({}, np.array([1, 2]))}),
            "expected 1 counts for topics.partitions, found 2",
        ),
        (
            Columns(
                {
                    "name": pa.array(["a"]),
                    "partitions": Columns({"partitionIndex": np.array([2**31])}, np.array([1])),
                }
            ),
            "expected int32 for topics.partitions.partitionIndex",
        ),
        (
            Columns(
                {
                    "name": pa.array(["a"]),
                    "partitions": Columns({"partitionIndex": np.array([1.5])}, np.array([1])),
                }
            ),
            "expected integers in numpy for topics.partitions.partitionIndex, found ndarray of float64",
        ),
    ],
)
def test_counts_and_numbers_that_do_not_fit_are_named(topics: Columns, why: str) -> None:
    with pytest.raises(UnwritableError, match=why):
        response_pieces(OFFSET_FETCH, 7, 7, {"topics": topics})


def test_arrays_of_numbers_have_no_columns() -> None:
    brokers = Columns({"nodeId": np.array([1]), "host": pa.array(["h"]), "port": np.array([9])})
    assert sent(METADATA, 0, {"brokers": brokers, "topics": []})
    counts = np.array([1])
    partitions = {name: np.array([1]) for name in ("partitionIndex", "leaderId")}
    lists = {name: Columns({}, counts) for name in ("replicaNodes", "isrNodes")}
    topics = Columns({"name": pa.array(["t"]), "partitions": Columns(partitions | lists, counts)})
    with pytest.raises(
        UnwritableError, match=r"expected an array of structs for topics.partitions.replicaNodes"
    ):
        response_pieces(METADATA, 0, 7, {"brokers": [], "topics": topics})


# --- a million offsets -------------------------------------------------------------------------------------


def test_a_million_offsets_are_written_in_a_fraction_of_a_second() -> None:
    groups, partitions = 1_000, 1_000
    count = groups * partitions
    fields = {
        "partitionIndex": np.tile(np.arange(partitions, dtype=np.int32), groups),
        "committedOffset": np.arange(count),
        "committedLeaderEpoch": np.zeros(count, np.int32),
        "metadata": pa.array(["", "m", None, "consumer-1"] * (count // 4)),
    }
    topics = Columns(
        {"name": pa.array(["orders"] * groups), "partitions": Columns(fields, np.full(groups, partitions))},
        np.ones(groups, np.int64),
    )
    body = {"groups": Columns({"groupId": pa.array([f"g{n}" for n in range(groups)]), "topics": topics})}
    started = time.process_time()
    pieces = response_pieces(OFFSET_FETCH, 9, 7, body)
    sizes = [len(piece) for piece in pieces]
    assert (
        time.process_time() - started < 1
    )  # 0.1 s on the machine of docs/performance.md; others may be slow
    assert sum(sizes) == pieces.size
    assert max(sizes) <= 1 << 20
