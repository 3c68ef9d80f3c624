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
    found = _HOST.fullmatch(header.strip())
    if found is None:
        return False
    name = (found["bracketed"] or found["name"].removesuffix(".")).lower()
    return name == own_host.lower().removesuffix(".") or is_loopback(name)
