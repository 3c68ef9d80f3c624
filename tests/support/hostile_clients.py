"""Clients that mean harm to the Kafka listener, in a process of their own.

    python -m hostile_clients KIND PORT

prints a line once the harm is under way, and goes on until it is killed.
"""

import random
import resource
import selectors
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from decoders.messages import request_bytes

MOST_CONNECTIONS: Final = 10_000
GROUPS: Final = 2_000
"""The groups of the tables: `g0`, `g1` and so on, each with offsets of the topic `t`."""

_HOST: Final = "127.0.0.1"
_HERE: Final = Path(__file__)
_EVERYTHING: Final = request_bytes(
    9, 8, 1, "hostile", {"groups": [{"groupId": f"g{number}", "topics": None} for number in range(GROUPS)]}
)
_VERSIONS: Final = request_bytes(18, 0, 1, "hostile", {})


def _connect(port: int, source: str = _HOST) -> socket.socket:
    return socket.create_connection((_HOST, port), 5, (source, 0))


def _again(port: int, count: int, act: Callable[[socket.socket], None]) -> None:
    """Do harm on so many connections at a time; one that ends is replaced."""

    def go_on() -> None:
        while True:
            with suppress(OSError), _connect(port) as one:
                act(one)

    for _ in range(count):
        threading.Thread(target=go_on, daemon=True).start()


def _read(one: socket.socket, answers: int) -> None:
    with one.makefile("rb") as stream:
        for _ in range(answers):
            size = stream.read(4)
            if len(size) < 4:
                return
            (left,) = struct.unpack(">i", size)
            while left and (piece := stream.read(min(left, 1 << 20))):
                left -= len(piece)


def slow(port: int) -> None:
    """Send a byte of a request now and then."""

    def act(one: socket.socket) -> None:
        for byte in _EVERYTHING:
            one.send(bytes([byte]))
            time.sleep(0.2)

    _again(port, 240, act)


def huge(port: int) -> None:
    """Send requests of the largest size, of a larger one, and some that only claim it."""

    def act(one: socket.socket) -> None:
        size = random.choice([4 * 1024 * 1024, 4 * 1024 * 1024 + 1, 2**31 - 1])
        one.sendall(struct.pack(">i", size) + struct.pack(">hhi", 15, 6, 1))
        for _ in range(64):
            one.sendall(bytes(64 * 1024))

    _again(port, 40, act)


def half_open(port: int) -> None:
    """Connect, send nothing or the begin of a size, and end only one direction."""

    def act(one: socket.socket) -> None:
        one.send(b"\0\0" if random.random() < 0.5 else _VERSIONS)
        one.shutdown(socket.SHUT_WR)
        time.sleep(10)

    _again(port, 200, act)


def many(port: int) -> None:
    """Hold as many connections as may be opened, from one address."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = [_attempt(port, _HOST) for _ in range(min(MOST_CONNECTIONS, most - 100))]
    _HELD.extend(filter(None, held))
    print(f"{len(_HELD):,} of {len(held):,} connections are open at first", file=sys.stderr)

    def go_on() -> None:  # those that were closed are opened again
        while True:
            for number, one in enumerate(_HELD):
                if _is_closed(one) and (other := _attempt(port, _HOST)):
                    one.close()
                    _HELD[number] = other

    threading.Thread(target=go_on, daemon=True).start()


_HELD: Final[list[socket.socket]] = []


def _attempt(port: int, source: str) -> socket.socket | None:
    with suppress(OSError):
        return _connect(port, source)
    return None


def _is_closed(one: socket.socket) -> bool:
    one.setblocking(False)
    with suppress(BlockingIOError):
        try:
            return one.recv(1) == b""
        except ConnectionError:
            return True
    return False


def garbage(port: int) -> None:
    """Send requests without waiting for answers, and garbage between them."""

    def act(one: socket.socket) -> None:
        frames = [_VERSIONS] * 500
        frames[random.randrange(500)] = struct.pack(">i", 300) + random.randbytes(300)
        threading.Thread(target=_send, args=(one, b"".join(frames)), daemon=True).start()
        _read(one, 500)

    _again(port, 100, act)


def _send(one: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        one.sendall(data)


def deaf(port: int) -> None:
    """Ask for large answers, and read none."""

    def act(one: socket.socket) -> None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        one.settimeout(60)
        while True:
            one.sendall(_EVERYTHING)

    _again(port, 100, act)


def million(port: int) -> None:
    """Ask about a million groups at once: four requests, and one that names all and is refused."""
    names = [f"x{number}" for number in range(250_000)]
    described = request_bytes(15, 6, 1, "hostile", {"groups": names})
    all_at_once = struct.pack(">i", 9_000_000) + bytes(9_000_000)

    def act(one: socket.socket) -> None:
        one.settimeout(60)
        threading.Thread(target=_send, args=(one, described * 4 + all_at_once), daemon=True).start()
        _read(one, 4)

    _again(port, 6, act)


def greedy(port: int) -> None:
    """Ask for everything all the time, and read it."""

    def act(one: socket.socket) -> None:
        one.settimeout(60)
        while True:
            one.sendall(_EVERYTHING)
            _read(one, 1)

    _again(port, 12, act)


# --- at a listener with TLS --------------------------------------------------------------------------------


def _trusting_all() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _client_hello() -> bytes:
    """Return the first message of a handshake."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _trusting_all().wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    return sent.read()


def half_handshakes(port: int) -> None:
    """Send nothing, half of a ClientHello, or all of it, and nothing more."""
    hello = _client_hello()

    def act(one: socket.socket) -> None:
        one.settimeout(60)
        one.sendall(random.choice([b"", hello[: len(hello) // 2], hello]))
        while one.recv(65_536):
            pass

    _again(port, 240, act)


def slow_handshakes(port: int) -> None:
    """Send a ClientHello byte by byte."""
    hello = _client_hello()

    def act(one: socket.socket) -> None:
        for byte in hello:
            one.send(bytes([byte]))
            time.sleep(0.1)

    _again(port, 240, act)


def garbage_handshakes(port: int) -> None:
    """Send garbage in place of a handshake, or in the middle of one."""
    hello = _client_hello()

    def act(one: socket.socket) -> None:
        one.settimeout(60)
        one.sendall(random.choice([b"", hello, hello[:100]]) + random.randbytes(600))
        while one.recv(65_536):
            pass

    _again(port, 100, act)


def handshakes(port: int) -> None:
    """Make nearly as many handshakes at once as connections are allowed, from four addresses."""
    tls = _trusting_all()

    def go_on(source: str) -> None:
        while True:
            with suppress(OSError), _connect(port, source) as one, tls.wrap_socket(one):
                pass

    for number in range(HANDSHAKES):
        threading.Thread(target=go_on, args=(f"127.0.1.{number % 4}",), daemon=True).start()


HANDSHAKES: Final = 990
"""Of 1,000 connections; the rest is for honest clients."""

_TLS: Final = (half_handshakes, slow_handshakes, garbage_handshakes, handshakes)
TLS_KINDS: Final = tuple(act.__name__ for act in _TLS)
"""What is done at a listener with TLS."""

KINDS: Final[Mapping[str, Callable[[int], None]]] = {
    act.__name__: act for act in (slow, huge, half_open, many, garbage, deaf, million, greedy, *_TLS)
}


@contextmanager
def hostile_clients(kind: str, port: int) -> Iterator[None]:
    """Do harm until the end of the block."""
    command = [sys.executable, str(_HERE), kind, str(port)]
    paths = [str(_HERE.parent), str(_HERE.parents[2])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(paths)}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"under way\n"
        try:
            yield
            assert process.poll() is None
        finally:
            process.kill()


if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]))
    time.sleep(1)
    print("under way", flush=True)
    selectors.DefaultSelector().select()
