"""Host names and addresses of this machine."""

import re
from typing import Final

from streaming.common.http_values import is_loopback

_HOST: Final = re.compile(r"(\[(?P<bracketed>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(:\d*)?", re.IGNORECASE)


def is_own_name(header: str, own_host: str) -> bool:
    """Return whether a `Host` header names loopback or the listening host.

    A browser sends the host of the page's URL; a foreign name that resolves to 127.0.0.1 (DNS rebinding) is
    neither.

    >>> is_own_name("LOCALHOST.:8720", "127.0.0.1"), is_own_name("[::1]", "127.0.0.1")
    (True, True)
    >>> is_own_name("evil.example:8720", "127.0.0.1"), is_own_name("127.0.0.1.evil.example", "127.0.0.1")
    (False, False)
    """
    name = _name(header)
    return name is not None and (name == own_host.lower().removesuffix(".") or is_loopback(name))


def is_same_host(origin: str, header: str) -> bool:
    """Return whether an `Origin` header names the host of a `Host` header, at whatever port.

    >>> is_same_host("https://lake.example", "Lake.example:8720"), is_same_host("null", "null")
    (True, False)
    """
    name = _name(origin.partition("://")[2])
    return name is not None and name == _name(header)


def _name(header: str) -> str | None:
    """Return the host without its port, in lower case; None: it is malformed."""
    found = _HOST.fullmatch(header.strip())
    return None if found is None else (found["bracketed"] or found["name"].removesuffix(".")).lower()
