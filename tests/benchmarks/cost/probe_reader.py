"""Asks the tables of a job for one group again and again, with the queries of the checkout on PYTHONPATH.

`probe_reader.py TABLES GROUP READS_PER_S` prints a line of JSON for the first answer and whenever it changes:
when the read had ended, and the committed offset of each partition. It runs until its standard input ends.
"""

import json
import select
import sys
import time


def main(root: str, group: str, reads_per_s: str) -> None:
    queries = opened(root)
    before: dict[int, int] | None = None
    while not select.select([sys.stdin], [], [], 1 / float(reads_per_s))[0]:
        rows = queries.fetch_offsets({group: None}).rows.to_pylist()
        moment, seen = time.time(), {row["partition"]: row["committed_offset"] for row in rows}
        if seen != before:
            print(json.dumps({"moment": moment, "seen": seen}), flush=True)
        before = seen


def opened(root: str):
    """Return the queries, from where this checkout has them: commit 9503bd1 had no rooms yet."""
    try:
        from streaming.queries.offsets import OffsetQueries
        from streaming.tables.tables import Tables
    except ImportError:
        from streaming.queries import OffsetQueries
        from streaming.tables import Tables
    return OffsetQueries(Tables(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
