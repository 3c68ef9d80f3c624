"""Where processes listen, and what those get there who know no secret of theirs. Needs Linux: see proc(5)."""

import re
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

NO_SUCH_CLASS: Final = "no.such.Class"
"""Whoever deserializes `serialized()` fails, and says so with this name."""

_LISTENING: Final = "0A"
_ACCEPTS_CONNECTIONS: Final = 0x10000  # __SO_ACCEPTCON, in /proc/net/unix
_PATIENCE_S: Final = (0.5, 1.0)  # before, and after the end of what was sent


def tcp_ports(pids: Iterable[int]) -> dict[int, int]:
    """Return the TCP ports at which processes listen, and which process does."""
    return {
        int(fields[1].rpartition(":")[2], 16): pid
        for pid in pids
        for table in ("tcp", "tcp6")
        for fields in _rows(pid, table)
        if fields[3] == _LISTENING and fields[9] in _inodes(pid)
    }


def unix_sockets(pids: Iterable[int]) -> dict[Path, int]:
    """Return the Unix sockets at which processes listen, and which process does."""
    return {
        Path(fields[7]): pid
        for pid in pids
        for fields in _rows(pid, "unix")
        if int(fields[3], 16) & _ACCEPTS_CONNECTIONS and len(fields) > 7 and fields[6] in _inodes(pid)
    }


def answer(port: int, question: bytes) -> bytes:
    """Connect, send something, and return what comes back, until the other side closes or nothing comes."""
    said = b""
    with socket.create_connection(("127.0.0.1", port)) as connection, suppress(ConnectionError):
        connection.sendall(question)
        for patience_s in _PATIENCE_S:
            connection.settimeout(patience_s)
            with suppress(TimeoutError):
                while received := connection.recv(65_536):
                    said += received
                break
            connection.shutdown(socket.SHUT_WR)  # whoever waits for more sees the end
    return said


def rpc_request(body: bytes) -> bytes:
    """Return a frame of Spark's network protocol: a request that wants an answer."""
    header = struct.pack(">bqi", 3, 1, len(body))
    return struct.pack(">q", 8 + len(header) + len(body)) + header + body


def to_endpoint() -> bytes:
    """Return a message to an endpoint of a driver, whose content is `serialized()`."""
    receiver = b"\1" + _utf("127.0.0.1") + struct.pack(">i", 1) + _utf("endpoint-verifier")
    return rpc_request(b"\0" + receiver + serialized())


def upload_of_block() -> bytes:
    """Return a message to a block manager: a block, whose metadata is `serialized()`."""
    names = b"".join(struct.pack(">i", len(name)) + name for name in (b"app", b"driver", b"rdd_0_0"))
    data = b"".join(struct.pack(">i", len(part)) + part for part in (serialized(), b"block"))
    return rpc_request(b"\1" + names + data)


def serialized() -> bytes:
    """Return an object of a class that is nowhere, as Java serializes it."""
    return bytes.fromhex("aced00057372") + _utf(NO_SUCH_CLASS) + bytes.fromhex("00000000000000010200007870")


def _utf(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _rows(pid: int, table: str) -> Iterator[list[str]]:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            yield line.split(maxsplit=7) if table == "unix" else line.split()


def _inodes(pid: int) -> set[str]:
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if socket_of := re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink())):
                    found.add(socket_of[1])
    return found
