"""Parts of HTTP requests that may be secret: addresses and headers, checked before they are used.

Messages about wrong ones never contain them: the errors of Python's HTTP client would quote them.
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
    r"(?P<rest>[/?#][!-?A-~]*)?"  # without @: text before it would be part of a password
)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t -~\xa0-\xff]*")
_PLAIN_PLACE: Final = re.compile(r"((abfs|wasb)s?://[^/?#@:]+@|[^/:]+://)[^/?#@]*(/[^?#]*)?")
_QUERY: Final = re.compile(r"(://[^\s?#]*)[?#]\S*")
_HOLDS_USER: Final = re.compile(r"https?://\S*@|://[^@\s]*:[^@\s]*@")


def is_address(text: str) -> bool:
    """Return whether a text is an http or https address that cannot be misread.

    >>> is_address("https://user:pa%23ss@host/"), is_address("https://user:pa#ss@host/")
    (True, False)
    """
    return _parsed(text) is not None


def shown_url(url: str) -> str:
    """Return an address without the parts that may be secret: user, password, path and query.

    >>> shown_url("https://user:password@hooks.example:8443/services/T0/B1?key=x")
    'https://hooks.example:8443/...'
    """
    found = _parsed(url)
    if found is None:
        return "(hidden)" if url else ""
    port = "" if found["port"] is None else f":{found['port']}"
    return f"{found['scheme']}://{found['host']}{port}{'/...' if found['rest'] else ''}"


def without_user(url: str) -> tuple[str, dict[str, str]]:
    """Return an address without user and password, and the header that carries these (empty: none)."""
    found = _parsed(url)
    if found is None or found["user"] is None:
        return url, {}
    token = base64.b64encode(unquote(found["user"]).encode("utf-8")).decode("ascii")
    return url.replace(f"{found['user']}@", "", 1), {"Authorization": f"Basic {token}"}


def is_loopback(host: str) -> bool:
    """Return whether a host, by name or address, is always this machine.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("127.0.0.1.org")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parse an address; an IPv4 address may be written as an IPv6 one. Raises `ValueError`.

    >>> ip_address("::ffff:127.0.0.1").is_loopback
    True
    """
    address = ipaddress.ip_address(text)
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def holds_user(text: str) -> bool:
    """Return whether a text seems to contain an address with a user or a password.

    >>> holds_user("http://user:password@proxy:3128"), holds_user("abfss://container@account/lake")
    (True, False)
    """
    return _HOLDS_USER.search(text) is not None


def is_plain_place(text: str) -> bool:
    """Return whether a text is a folder, or a URL without user and query.

    The part before the @ in abfss://container@account is not a user.

    >>> is_plain_place("a?b"), is_plain_place("abfss://c@account/x"), is_plain_place("s3://id@bucket/x")
    (True, True, False)
    """
    return "://" not in text or _PLAIN_PLACE.fullmatch(text) is not None


def without_query(text: str) -> str:
    """Hide the queries and fragments of the addresses in a text.

    >>> without_query("https://host/path?key=x#y")
    'https://host/path?(hidden)'
    """
    return _QUERY.sub(r"\1?(hidden)", text)


def refused_header(headers: Mapping[str, object]) -> str | None:
    """Describe the first entry that cannot be an HTTP header; None: all can.

    Its name is included only if it is valid: an invalid one may be a whole header with a secret.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            return "a name that no header can have"
        if isinstance(value, str) and not _HEADER_VALUE.fullmatch(value):
            return f"{refused_text(value)} as {name}"
    return None


def refused_text(value: str) -> str:
    """Describe a value that was refused, without revealing it."""
    return LINE_END if value.endswith(("\n", "\r")) else "something else"


def _parsed(url: str) -> re.Match[str] | None:
    found = _ADDRESS.fullmatch(url) if url.isprintable() else None
    is_port = found is None or int(found["port"] or 0) <= LARGEST_PORT
    return found if is_port else None
