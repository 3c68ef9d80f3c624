"""Addresses to listen on: whether they exist, and whether other machines can reach them."""

import socket

from streaming.common.http_values import ip_address
from streaming.model.errors import MisuseError
from streaming.serve.kafka.listener import KafkaListenerError
from streaming.serve.kafka.view import Address
from streaming.settings.kinds import host_and_port


def address(text: str) -> Address:
    found = host_and_port(text)
    assert found is not None, text  # settings are checked when they are read
    return Address(*found)


def others_at(text: str) -> list[str]:
    """Return the addresses of a host and port that other machines can reach; raises like `addresses_at`."""
    return [host for host in addresses_at(text) if not ip_address(host).is_loopback]


def addresses_at(text: str) -> list[str]:
    """Return the addresses of a host and port.

    Raises `MisuseError` for an invalid host name, and `KafkaListenerError` for an unknown host.
    """
    try:
        found = socket.getaddrinfo(*address(text), type=socket.SOCK_STREAM)
    except UnicodeError as error:  # e.g. a label of the name with more than 63 letters
        raise MisuseError(
            f"listening on {text}: expected a host name or an address, found an invalid name "
            f"({error}). Use one of this machine, such as 127.0.0.1."
        ) from error
    except OSError as error:
        raise KafkaListenerError(
            f"listening on {text}: its host is unknown ({error.strerror}). Use an address of this "
            "machine instead, such as 127.0.0.1."
        ) from error
    return [str(one[4][0]).partition("%")[0] for one in found]


def shown(place: Address) -> str:
    return f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"
