"""Names and addresses of hosts: which of them are this machine."""

import ipaddress
import re
from typing import Final

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
    if name in ("localhost", own_host.lower().removesuffix(".")):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address; one of IPv4 also where it is written as one of IPv6. Raises `ValueError`.

    >>> ip_address("::ffff:127.0.0.1").is_loopback
    True
    """
    address = ipaddress.ip_address(text)
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address
