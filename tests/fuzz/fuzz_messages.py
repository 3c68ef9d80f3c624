"""Fuzzes the reader of requests: `python tests/fuzz/fuzz_messages.py -max_total_time=60 [CORPUS]` (atheris).

An input is a frame. None may raise anything but `DecodeError`, and what is read is what `construct` reads. It
is written again, and read to the same. `--corpus DIRECTORY` writes the frames of real clients, and one of
every API and version, as a corpus to start from. Atheris is not among the project's dependencies: install it
into an environment of its own.
"""

import json
import sys
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    sys.exit("the fuzzer needs atheris, which is not a dependency of this project: pip install atheris")

with atheris.instrument_imports(include=["decoders"]):
    from construct import Construct, Default, Struct

    from decoders import DecodeError
    from decoders.formats.wire import Blob, Boolean, Integer, Sequence, Text, Uuid
    from decoders.messages import APIS, read_request, request_bytes
    from decoders.messages.api import REQUEST_HEADERS

VECTORS = Path(__file__).parents[1] / "vectors" / "requests.json"
SIZE_BYTES = 4


def check(frame: bytes) -> None:
    """Read a frame."""
    try:
        request = read_request(frame)
    except DecodeError:
        return
    if request.body is None:
        return
    api = APIS[request.api_key]
    whole = Struct(
        "header" / REQUEST_HEADERS[api.request_header(request.api_version)],
        "body" / api.request_layout(request.api_version),
    )
    assert request.body == whole.parse(frame).body
    again = request_bytes(*request[:4], request.body)[SIZE_BYTES:]
    assert read_request(again) == request


def write_corpus(directory: Path) -> None:
    """The frames of real clients, and a small one of every API and version."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, vector in enumerate(json.loads(VECTORS.read_text())):
        (directory / f"client-{number}").write_bytes(bytes.fromhex(vector["frame"]))
    for api in APIS.values():
        for version in api.versions:
            frame = request_bytes(api.key, version, 1, "fuzz", small(api.request_layout(version)))
            (directory / f"{api.name}-{version}").write_bytes(frame[SIZE_BYTES:])


def small(declaration: Construct) -> Any:
    """A value with one element in each of its arrays."""
    match declaration:
        case Struct():
            return {field.name: small(field.subcon) for field in declaration.subcons}
        case Sequence():
            return [small(declaration.element)]
        case Default():
            return declaration.value
        case Uuid():
            return "A" * 22
        case Text():
            return "a"
        case Blob():
            return b"a"
        case Integer() | Boolean():
            return 0
    raise TypeError(f"no value for {declaration!r}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--corpus"]:
        write_corpus(Path(sys.argv[2]))
    else:
        atheris.Setup(sys.argv, check)
        atheris.Fuzz()
