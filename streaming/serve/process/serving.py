"""Serves until told to stop: a thread keeps the picture, one loop answers at all doors."""

import asyncio
import gc
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from streaming.common.conf_dir import whole_path
from streaming.model.errors import MisuseError
from streaming.serve.kafka.listener import DoorError, Listener, cluster_id_of
from streaming.serve.kafka.view import Address
from streaming.serve.picture.follower import Follower
from streaming.settings.kinds import host_and_port
from streaming.settings.model import KafkaDoor, Settings
from streaming.tables.tables import Tables

_SWITCH_S: Final = 0.0001
"""How long the thread that reads tables may go on while a request waits: fifty times shorter than Python's
own 5 ms, for which every request would wait several times."""

_COLLECT_EVERY_S: Final = 10.0

Say = Callable[[str], None]


def serve(settings: Settings, tables: Tables, say: Say, warn: Say) -> None:
    """Answer at the doors of `[serve]` until SIGTERM or SIGINT.

    Raises `MisuseError` for doors that may not be opened, and `DoorError` for those that cannot. What goes
    wrong later is told to `warn`.
    """
    doors = [(_listening(door), _advertised(door)) for door in settings.serve.kafka]
    if not doors:
        raise MisuseError(
            "serving: expected a door to open, found none. Give --kafka HOST:PORT, such as 127.0.0.1:9192."
        )
    sys.setswitchinterval(_SWITCH_S)
    with Follower(tables, warn) as follower:
        listeners = [
            Listener(
                listening,
                lambda: follower.current,
                warn,
                cluster_id=cluster_id_of(whole_path(settings.tables.root)),
                max_age_ms=settings.serve.max_age_ms,
                advertised=advertised,
            )
            for listening, advertised in doors
        ]
        gc.disable()  # it would stop all answers while a large one is made: see `_collect`
        gc.collect()
        gc.freeze()  # what stays until the end need not be looked through again and again
        asyncio.run(_serve(listeners, say))


async def _serve(listeners: list[Listener], say: Say) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        for listener in listeners:
            await stack.enter_async_context(listener)
            say(f"answering Kafka's clients on {_shown(listener.address)}")
        collecting = asyncio.create_task(_collect(listeners[0]))
        await stop.wait()
        collecting.cancel()


async def _collect(listener: Listener) -> None:
    """Collect garbage now and then, between two large answers: so there is little to look through."""
    while True:
        await asyncio.sleep(_COLLECT_EVERY_S)
        await listener.elsewhere(gc.collect)


def _listening(door: KafkaDoor) -> Address:
    """Return the address to listen on; only this machine may reach it, for nobody is asked who they are."""
    address = _address(door.listen)
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # labels of a name have one to 63 letters
        raise MisuseError(
            f"listening on {door.listen}: expected a host's name or its address, found what is no name "
            f"({error}). Give one of this machine, such as 127.0.0.1."
        ) from error
    except OSError as error:
        raise DoorError(
            f"listening on {door.listen}: its host is not known ({error.strerror}). Give an address of this "
            "machine instead, such as 127.0.0.1."
        ) from error
    hosts = [str(one[4][0]).partition("%")[0] for one in found]
    others = [host for host in hosts if not ipaddress.ip_address(host).is_loopback]
    if others:
        raise MisuseError(
            f"listening on {door.listen}: expected a loopback address, such as 127.0.0.1 or [::1], found "
            f"{others[0]}. Clients are not authenticated, so other machines are not answered; let them come "
            "through a tunnel (ssh -L), and give --advertise what they then connect to."
        )
    return address


def _advertised(door: KafkaDoor) -> Address | None:
    if not door.advertise:
        return None
    address = _address(door.advertise)
    if _means_any(address.host) or not address.port:
        raise MisuseError(
            f"advertising {door.advertise}: expected what clients can connect to, found an address that "
            "means any. Give the host and port that they use."
        )
    return address


def _means_any(host: str) -> bool:
    """Tell whether a host is an address that means any, however it is written (0, 0x0, 0.0, ::0,
    ::ffff:0.0.0.0)."""
    with suppress(OSError):
        return socket.inet_aton(host) == bytes(4)
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        return (
            (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address
        ).is_unspecified
    return False


def _address(text: str) -> Address:
    found = host_and_port(text)
    assert found is not None, text  # settings are checked when they are read
    return Address(*found)


def _shown(address: Address) -> str:
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"
