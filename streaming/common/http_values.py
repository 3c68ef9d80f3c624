"""What stands in an HTTP request and may be secret: addresses and headers, checked before they are used.

Where they are wrong, nothing says what they are: Python's HTTP client quotes in its errors what it refuses.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

AN_ADDRESS: Final = (
    "an address such as https://host:port/path (encode as %XX: what is not printable ASCII, an @ after the "
    "host, and any of / ? # @ in a user or password)"
)
HEADERS: Final = "headers: valid HTTP names, and values of one line in Latin-1"
LINE_END: Final = "text with a trailing newline (printf and echo -n write a secret without one)"

LARGEST_PORT: Final = 65_535

_ADDRESS: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:(?P<user>[^/?#@ ]*)@)?"
    r"(?P<host>[A-Za-z0-9._~-]+|\[[A-Za-z0-9:.%]+\])(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<rest>[/?#][!-?A-~]*)?"  # without @: what is before it would be part of a password
)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t -~\xa0-\xff]*")
_PLAIN_PLACE: Final = re.compile(r"((abfs|wasb)s?://[^/?#@:]+@|[^/:]+://)[^/?#@]*(/[^?#]*)?")
_QUERY: Final = re.compile(r"(://[^\s?#]*)[?#]\S*")
_HOLDS_USER: Final = re.compile(r"https?://\S*@|://[^@\s]*:[^@\s]*@")


def is_address(text: str) -> bool:
    """Tell whether a text is an http or https address that cannot be misread.

    >>> is_address("https://user:pa%23ss@host/"), is_address("https://user:pa#ss@host/")
    (True, False)
    """
    return _parsed(text) is not None


def shown_url(url: str) -> str:
    """Return an address without what may be secret: user, password, path and query.

    >>> shown_url("https://user:password@hooks.example:8443/services/T0/B1?key=x")
    'https://hooks.example:8443/...'
    """
    found = _parsed(url)
    if found is None:
        return "(hidden)" if url else ""
    port = "" if found["port"] is None else f":{found['port']}"
    return f"{found['scheme']}://{found['host']}{port}{'/...' if found['rest'] else ''}"


def without_user(url: str) -> tuple[str, dict[str, str]]:
    """Take user and password out of an address; return it, and the header that says them."""
    found = _parsed(url)
    if found is None or found["user"] is None:
        return url, {}
    token = base64.b64encode(unquote(found["user"]).encode("utf-8")).decode("ascii")
    return url.replace(f"{found['user']}@", "", 1), {"Authorization": f"Basic {token}"}


def is_loopback(host: str) -> bool:
    """Tell whether a host, by name or address, is this machine alone.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("127.0.0.1.org")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address; one of IPv4 also where it is written as one of IPv6. Raises `ValueError`.

    >>> ip_address("::ffff:127.0.0.1").is_loopback
    True
    """
    address = ipaddress.ip_address(text)
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def holds_user(text: str) -> bool:
    """Tell whether a text seems to hold an address with a user or a password in it.

    >>> holds_user("http://user:password@proxy:3128"), holds_user("abfss://container@account/lake")
    (True, False)
    """
    return _HOLDS_USER.search(text) is not None


def is_plain_place(text: str) -> bool:
    """Tell whether a text is a folder, or a URL that holds neither a user nor a query.

    What is before the @ in abfss://container@account is no user.

    >>> is_plain_place("a?b"), is_plain_place("abfss://c@account/x"), is_plain_place("s3://id@bucket/x")
    (True, True, False)
    """
    return "://" not in text or _PLAIN_PLACE.fullmatch(text) is not None


def without_query(text: str) -> str:
    """Return a text without the queries and fragments of the addresses in it.

    >>> without_query("https://host/path?key=x#y")
    'https://host/path?(hidden)'
    """
    return _QUERY.sub(r"\1?(hidden)", text)


def refused_header(headers: Mapping[str, object]) -> str | None:
    """Say what stands there instead of a header that a request can carry; None: all can be sent.

    The name is said only if it is valid: it may be a whole header, written in place of a name.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            return "a name that no header can have"
        if isinstance(value, str) and not _HEADER_VALUE.fullmatch(value):
            return f"{refused_text(value)} as {name}"
    return None


def refused_text(value: str) -> str:
    """Say what was found instead of what was expected, without saying it."""
    return LINE_END if value.endswith(("\n", "\r")) else "something else"


def _parsed(url: str) -> re.Match[str] | None:
    found = _ADDRESS.fullmatch(url) if url.isprintable() else None
    is_port = found is None or int(found["port"] or 0) <= LARGEST_PORT
    return found if is_port else None
