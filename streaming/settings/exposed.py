"""Exposed secrets: in files that everybody may read, and in plain text on a network."""

import re
import stat
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from streaming.common.http_values import holds_user, is_loopback, shown_url
from streaming.model.errors import MisuseError
from streaming.settings.kinds import host_and_port
from streaming.settings.model import Settings
from streaming.settings.properties import read_properties
from streaming.settings.secrets import files_referred_to, looks_secret, looks_secret_beside_references

_OF_HEADERS: Final = re.compile(r"alerts\.(webhook|alertmanager)\.headers\.")
_SECRET_ON_THE_WIRE: Final = ("PLAIN", "OAUTHBEARER", "AWS_MSK_IAM")
_TOKENS_URL: Final = "sasl.oauthbearer.token.endpoint.url"


def exposed_secrets(
    settings: Settings, config: Path | None = None, command_config: Path | None = None
) -> list[str]:
    """Return a sentence for each secret that others may see: in a settings file, in a properties file for
    Kafka's clients, in files that these refer to, and in plain text on a network.
    """
    return [*_readable(_files(settings, config, command_config)), *_in_plain_text(settings)]


def _files(settings: Settings, config: Path | None, command_config: Path | None) -> Iterator[Path]:
    """Yield the files that contain secrets."""
    of_config, of_client = _texts_of(config), _properties_of(command_config)
    if config is not None and any(_is_secret(name, value) for name, value in of_config.items()):
        yield config
    if command_config is not None and any(_is_secret(name, value) for name, value in of_client.items()):
        yield command_config
    yield from files_referred_to([*of_config.values(), *of_client.values()])
    if settings.serve.http.token_file:
        yield Path(settings.serve.http.token_file)
    http, kafka = settings.serve.http, settings.serve.kafka
    keys = [http.key_file or http.certificate_file]
    keys += [listener.key_file or listener.certificate_file for listener in kafka]
    keys += [listener.broker.get("ssl.keystore.location", "") for listener in kafka]
    yield from (Path(key) for key in keys if key)


def _texts_of(config: Path | None) -> dict[str, str]:
    """Read a settings file again; empty if it is a pipe, or no longer there or readable."""
    if config is None or not config.is_file():
        return {}
    try:
        return _texts(tomllib.loads(config.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _properties_of(command_config: Path | None) -> dict[str, str]:
    if command_config is None or not command_config.is_file():
        return {}
    try:
        return read_properties(command_config)
    except MisuseError:
        return {}


def _texts(tree: Any, name: str = "") -> dict[str, str]:
    """Return all texts in a settings file by dotted name."""
    match tree:
        case dict():
            within = [_texts(value, f"{name}.{key}".lstrip(".")) for key, value in tree.items()]
        case list():
            within = [_texts(value, f"{name}[{number}]") for number, value in enumerate(tree)]
        case _:
            return {name: tree} if isinstance(tree, str) else {}
    return {name: text for texts in within for name, text in texts.items()}


def _is_secret(name: str, value: str) -> bool:
    """Return whether a setting contains a secret; headers and paths of receivers may be one."""
    is_header = _OF_HEADERS.match(name) is not None
    if "${" in value:  # of a header the rest is its scheme: Bearer ${env:TOKEN}
        return not is_header and looks_secret_beside_references(name, value)
    is_path = name in ("alerts.webhook.url", "alerts.alertmanager.url") and shown_url(value).endswith("/...")
    return is_path or is_header or looks_secret(name, value)


def _readable(files: Iterable[Path]) -> Iterator[str]:
    for file in dict.fromkeys(files):
        try:
            mode = file.stat().st_mode
            is_reachable = all(above.stat().st_mode & stat.S_IXOTH for above in file.resolve().parents)
        except OSError:
            continue  # reading it reports the error
        if mode & stat.S_IROTH and is_reachable:
            yield (
                f"{file} holds secrets, and every user of this machine may read it (mode "
                f"{stat.S_IMODE(mode):04o}): take that from them (chmod o-r)"
            )


def _in_plain_text(settings: Settings) -> Iterator[str]:
    for name, receiver in (
        ("alerts.webhook", settings.alerts.webhook),
        ("alerts.alertmanager", settings.alerts.alertmanager),
    ):
        if _is_plain(receiver.url) and (receiver.headers or holds_user(receiver.url)):
            yield f"{name}.url is http: its password or headers cross the network in plain text: use https"
    client = settings.source.client
    if _is_plain(client.get(_TOKENS_URL, "")):
        yield f"{_TOKENS_URL} is http: its secret crosses the network in plain text: use https"
    protocol, mechanism = client.get("security.protocol", ""), client.get("sasl.mechanism", "")
    servers = (one.rpartition("//")[2].strip() for one in settings.source.bootstrap_servers.split(","))
    is_here = all(is_loopback(place[0]) for one in servers if (place := host_and_port(one)))
    if protocol.upper() == "SASL_PLAINTEXT" and mechanism in _SECRET_ON_THE_WIRE and not is_here:
        yield (
            f"security.protocol is SASL_PLAINTEXT: the password or token of {mechanism} crosses the network "
            "in plain text: use SASL_SSL"
        )


def _is_plain(url: str) -> bool:
    """Return whether an address is http, and of another machine."""
    return url.startswith("http://") and not is_loopback(urlsplit(url).hostname or "")
