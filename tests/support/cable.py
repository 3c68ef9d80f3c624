"""A cable between clients and a broker that a test can cut: a TCP proxy on loopback."""

import socket
import threading
from contextlib import suppress
from typing import Final, Self

_CHUNK: Final = 1 << 16


class Cable:
    """Listens on `port`, passes everything on to 127.0.0.1:`target`; while cut, connections end at once."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        self._is_cut = False
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, name="cable", daemon=True).start()

    def cut(self) -> None:
        """End all connections, and let none live."""
        with self._lock:
            self._is_cut = True
            ends = list(self._ends)
        for end in ends:
            _close(end)

    def mend(self) -> None:
        """Let connections live again."""
        with self._lock:
            self._is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            _close(client)
            return
        with self._lock:
            self._ends |= {client, broker}
            is_cut = self._is_cut
        if is_cut:
            _close(client)
            _close(broker)
        back = threading.Thread(target=self._pass_on, args=(broker, client), daemon=True)
        back.start()
        self._pass_on(client, broker)
        back.join()
        with self._lock:
            self._ends -= {client, broker}

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                sink.sendall(chunk)
        _close(source)
        _close(sink)


def _close(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
