"""Numbers keys: equal numbers, equal keys, whatever the names are made of.

pandas cannot do that: its hash tables of texts read C strings, so that two names which are alike up to a NUL
are one to `factorize`, `groupby` and `MultiIndex`. Kafka takes such names; texts of numpy lose NULs at their
end.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.arrow_numpy import from_numbers, to_numbers

Codes = npt.NDArray[np.int64]


def key_codes(columns: Iterable[pa.ChunkedArray | pa.Array]) -> Codes:
    """Number the keys that columns of n texts or numbers make together (n int64, from 0 in order of coming).

    None of the texts and numbers is null.

    >>> key_codes([pa.array(["a", "a\\0", "a", "a"]), pa.array([1, 1, 1, 2])]).tolist()
    [0, 1, 0, 2]
    """
    first, *others = columns
    codes, _ = numbered(first)
    for column in others:
        own, values = numbered(column)
        codes, _ = numbered(from_numbers(codes * len(values) + own))
    return codes


def numbered(column: pa.ChunkedArray | pa.Array) -> tuple[Codes, pa.Array]:
    """Return for each of n values, none of them null, the place of its equal among the distinct ones, and
    these in the order in which they come.

    >>> codes, values = numbered(pa.array(["b", "a", "b"]))
    >>> codes.tolist(), values.to_pylist()
    ([0, 1, 0], ['b', 'a'])
    """
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    chunks = chunked.dictionary_encode().chunks  # all have one dictionary, that of the last
    if not chunks:
        return np.empty(0, np.int64), pa.array([], column.type)
    codes = np.concatenate([to_numbers(chunk.indices) for chunk in chunks]).astype(np.int64)
    return codes, chunks[-1].dictionary
