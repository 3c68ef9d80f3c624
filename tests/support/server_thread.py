"""Runs a server of a test in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import TCPServer


@contextmanager
def serving(server: TCPServer) -> Iterator[None]:
    """Serve until the end of the block, and close the server."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
