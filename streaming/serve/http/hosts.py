"""Names and addresses of hosts: which of them are this machine."""

import re
from typing import Final

from streaming.common.http_values import is_loopback

_HOST: Final = re.compile(r"(\[(?P<bracketed>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(:\d*)?", re.IGNORECASE)


def is_own_name(header: str, own_host: str) -> bool:
    """Tell whether a `Host` header names loopback, or the host that is listened on.

    A browser sends the name of the page's address: one that its owner lets lead to 127.0.0.1 (DNS rebinding)
    is none of these.

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
