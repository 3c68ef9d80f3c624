"""Object stores beside the one of `object_store`, for `make test-s3`: versitygw (S3), and Azurite (Azure).

versitygw is built by Go and Azurite is installed by npm when their tests first run (80 MB and 360 MB).
fake-gcs-server 1.56.1, for `gs://`, takes none of the writes of delta-rs: it has no PUT of GCS's XML API.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from client_programs import go_program, npm_program
from object_store import BUCKET, ObjectStore, accepts, wait_until_ready
from pyarrow.fs import AzureFileSystem

from streaming.demo.child import Child
from streaming.demo.local_broker import free_ports

_VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_AZURITE: Final = "azurite@3.37.0"  # 3.35 ignores `startFrom`, with which delta-rs lists the log of a table
_AZURITE_BEFORE: Final = "2026-11-25"

_ACCOUNT: Final = "devstoreaccount1"
_ACCOUNT_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The account that Azurite has, and its key, which its documentation publishes."""


class AzureStore(ObjectStore):
    """A running server of Azure's Blob Storage."""

    def options(self, user: str = _ACCOUNT, *, endpoint: str | None = None) -> dict[str, str]:
        """Return the storage options of an account, which also work as environment variables."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": user,
            "AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY,
            "AZURE_STORAGE_ENDPOINT": f"{endpoint or self.endpoint}/{user}",
            "AZURE_ALLOW_HTTP": "true",
        }


@contextmanager
def start_versitygw(directory: Path) -> Iterator[ObjectStore]:
    """Run versitygw, with its data in a directory, until the end of the block. A bucket is a folder there.

    Raises `MissingError` where it cannot be had.
    """
    program = go_program(_VERSITYGW)
    data = directory / "data"
    (data / BUCKET).mkdir(parents=True)
    [port] = free_ports(1)
    keys = ("--access", "writer", "--secret", "writer-secret")
    command = [str(program), "--port", f"127.0.0.1:{port}", *keys, "--quiet", "posix", str(data)]
    with _running(command, port, directory):
        yield ObjectStore(f"http://127.0.0.1:{port}")


@contextmanager
def start_azurite(directory: Path) -> Iterator[ObjectStore]:
    """Run Azurite, with its data in a directory and one container, until the end of the block.

    Raises `MissingError` where it cannot be had.
    """
    program = npm_program(_AZURITE, "dist/src/blob/main.js", before=_AZURITE_BEFORE)
    [port] = free_ports(1)
    place = ("--location", str(directory / "data"), "--blobPort", str(port))
    with _running([*program, *place, "--silent", "--disableTelemetry", *_ANY_VERSION], port, directory):
        at = f"127.0.0.1:{port}"
        AzureFileSystem(
            _ACCOUNT,
            account_key=_ACCOUNT_KEY,
            blob_storage_authority=at,
            blob_storage_scheme="http",
            dfs_storage_authority=at,
            dfs_storage_scheme="http",
        ).create_dir(BUCKET)
        yield AzureStore(f"http://{at}", f"az://{BUCKET}")


_ANY_VERSION: Final = ("--skipApiVersionCheck",)
"""Arrow, which creates the container, asks with a newer version of the API than Azurite knows."""

OTHER_STORES: Final[dict[str, Callable[[Path], AbstractContextManager[ObjectStore]]]] = {
    "versitygw": start_versitygw,
    "Azurite": start_azurite,
}


@contextmanager
def _running(command: list[str], port: int, directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "log"
    child = Child(command, log=log, directory=directory)
    try:
        wait_until_ready(child, lambda: accepts(port), log)
        yield
    finally:
        child.end(signal.SIGKILL)
