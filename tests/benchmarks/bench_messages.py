"""What requests and responses of Kafka's protocol cost, on one core: `make bench ARGS="--only messages"`.

Seconds are those of the process's own CPU time, the median of several runs. Targets of the listener, which
has to look up the answers in the same time: 4,000 small requests a second; ListGroups of 100,000 groups
50 ms; OffsetFetch of 1,000 groups x 1,000 partitions 0.3 s.

Last seen, on two shared cores with Python 3.11, numpy 2.4 and pyarrow 26:

    small requests and responses     133,965/s
    100,000 groups, ListGroups           25 ms
    1 M offsets, no metadata             38 ms
    1 M offsets, metadata of 0-39 bytes 116 ms
"""

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa

from decoders.messages import Columns, read_request, request_bytes, response_bytes, response_pieces

LIST_GROUPS, OFFSET_FETCH, FIND_COORDINATOR = 16, 9, 10
SIZE_BYTES = 4


def seconds_of(action: Callable[[], object], runs: int = 7) -> float:
    """The CPU time of an action."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return median(times)


def pairs_of_requests(count: int) -> None:
    """Read small requests and write their responses, half of them of each of two APIs."""
    fetch = {"groups": [{"groupId": "billing", "topics": None}]}
    partitions = [{"partitionIndex": n, "committedOffset": n, "metadata": ""} for n in range(3)]
    fetched = {"groups": [{"groupId": "billing", "topics": [{"name": "orders", "partitions": partitions}]}]}
    find = {"coordinatorKeys": ["billing"]}
    found = {"coordinators": [{"key": "billing", "nodeId": 1, "host": "localhost", "port": 9192}]}
    frames = [
        (request_bytes(OFFSET_FETCH, 9, 1, "c", fetch)[SIZE_BYTES:], fetched),
        (request_bytes(FIND_COORDINATOR, 6, 1, "c", find)[SIZE_BYTES:], found),
    ]
    for _ in range(count // 2):
        for frame, body in frames:
            request = read_request(frame)
            response_bytes(request.api_key, request.api_version, request.correlation_id, body)


def groups_of(count: int) -> Columns:
    """Groups for ListGroups."""
    texts = {"protocolType": "consumer", "groupState": "Stable", "groupType": "classic"}
    fields = {name: pa.array([text] * count) for name, text in texts.items()}
    return Columns({"groupId": pa.array([f"group-{n}" for n in range(count)]), **fields})


def offsets_of(groups: int, partitions: int, metadata: list[str]) -> Columns:
    """Groups for OffsetFetch, with one topic each."""
    count = groups * partitions
    fields = {
        "partitionIndex": np.tile(np.arange(partitions, dtype=np.int32), groups),
        "committedOffset": np.arange(count),
        "committedLeaderEpoch": np.zeros(count, np.int32),
        "metadata": pa.array((metadata * count)[:count]),
        "errorCode": np.zeros(count, np.int16),
    }
    topics = {
        "name": pa.array(["orders"] * groups),
        "partitions": Columns(fields, np.full(groups, partitions)),
    }
    names = pa.array([f"group-{n}" for n in range(groups)])
    return Columns({"groupId": names, "topics": Columns(topics, np.ones(groups, np.int64))})


def pieces_of(api_key: int, version: int, groups: Columns) -> int:
    """Write a large response piece by piece; return its bytes."""
    return sum(len(piece) for piece in response_pieces(api_key, version, 1, {"groups": groups}))


def main() -> None:
    """Print the figures."""
    pairs = 20_000
    print(
        f"small requests and responses        {pairs / seconds_of(lambda: pairs_of_requests(pairs)):>7,.0f}/s"
    )
    groups = groups_of(100_000)
    show("100,000 groups, ListGroups", LIST_GROUPS, 5, groups)
    show("1 M offsets, no metadata", OFFSET_FETCH, 9, offsets_of(1_000, 1_000, [""]))
    texts = ["x" * size for size in range(40)]
    show("1 M offsets, metadata of 0-39 bytes", OFFSET_FETCH, 9, offsets_of(1_000, 1_000, texts))


def show(name: str, api_key: int, version: int, groups: Columns) -> None:
    """Print how long a large response takes."""
    print(f"{name:<35} {seconds_of(lambda: pieces_of(api_key, version, groups)) * 1e3:>4.0f} ms")


if __name__ == "__main__":
    main()
