"""Secrets that others can have are warned of: in files that everybody may read, and in plain text."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.settings.exposed import exposed_secrets
from streaming.settings.reading import read_settings

SECRET = "c4n4ry"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that everybody may enter; those that pytest makes are for this user alone."""
    above = [tmp_path, *(one for one in tmp_path.parents if "pytest-" in str(one))]
    modes = {one: one.stat().st_mode for one in above}
    for one in above:
        one.chmod(0o711)
    yield tmp_path
    for one, mode in modes.items():
        one.chmod(mode)


def written(folder: Path, name: str, text: str, mode: int = 0o644) -> Path:
    file = folder / name
    file.write_text(text)
    file.chmod(mode)
    return file


def warnings(config: Path | None = None, command_config: Path | None = None, **options: Any) -> list[str]:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return exposed_secrets(read_settings(config, given), config, command_config)


HOLD_SECRETS = {
    "a password": f'[source.client]\n"ssl.key.password" = "{SECRET}"',
    "a header": f'[alerts.webhook]\nurl = "https://x"\n[alerts.webhook.headers]\nX = "{SECRET}"',
    "the path of a hook": f'[alerts.webhook]\nurl = "https://hooks.example/{SECRET}"',
    "the user of a hook": f'[alerts.alertmanager]\nurl = "https://user:{SECRET}@hooks.example"',
    "a password beside a reference": "[source.client]\n"
    f'"sasl.jaas.config" = \'X required username="${{env:HOME}}" password="{SECRET}";\'',
    "a password in the query of a hook": "[alerts.webhook]\n"
    f'url = "https://hooks.example/${{env:HOME}}?token={SECRET}"',
    "the user of a hook, beside a reference": "[alerts.webhook]\n"
    f'url = "https://user:{SECRET}@hooks.example/${{env:HOME}}"',
    "a password of which a part is a reference": "[source.client]\n"
    f'"ssl.key.password" = "{SECRET}${{env:HOME}}"',
    "a signature": f'[tables.storage_options]\nx = "sv=1&sig={SECRET}"',
}
HOLD_NONE = {
    "nothing": "",
    "references": '[alerts.webhook]\nurl = "https://x/${env:HOME}"\nheaders = { X = "${env:HOME}" }\n'
    '[source.client]\n"ssl.key.password" = "${env:HOME}"\n"ssl.truststore.location" = "/keys/x"',
    "references as parts": "[source.client]\n"
    '"sasl.jaas.config" = \'X required username="me" password="${env:HOME}";\'\n'
    '[alerts.webhook]\nurl = "https://me:${env:WORD}@x/?token=${env:WORD}"\n'
    'headers = { Authorization = "Bearer ${env:HOME}" }',
    "a host": '[alerts.webhook]\nurl = "https://hooks.example"',
    "lists": '[[serve.kafka]]\nlisten = "127.0.0.1:1"',
}


@pytest.mark.parametrize("text", HOLD_SECRETS.values(), ids=HOLD_SECRETS.keys())
def test_a_settings_file_with_a_secret_that_everybody_may_read(folder: Path, text: str) -> None:
    file = written(folder, "mine.toml", text)
    (line,) = warnings(file)
    assert line == (
        f"{file} holds secrets, and every user of this machine may read it (mode 0644): take that from them "
        "(chmod o-r)"
    )
    file.chmod(0o640)
    assert warnings(file) == []


@pytest.mark.parametrize("text", HOLD_NONE.values(), ids=HOLD_NONE.keys())
def test_a_settings_file_without_secrets_may_be_read_by_all(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", SECRET)
    assert warnings(written(folder, "mine.toml", text)) == []


def test_a_file_that_nobody_else_can_reach_is_not_warned_of(folder: Path) -> None:
    file = written(folder, "mine.toml", HOLD_SECRETS["a password"])
    folder.chmod(0o700)
    assert warnings(file) == []


def test_files_that_settings_refer_to_and_those_of_clients_and_of_the_token(folder: Path) -> None:
    secrets = written(folder, "secrets.properties", f"a={SECRET}\n")
    of_client = written(folder, "client.properties", f"ssl.key.password={SECRET}\n")
    token = written(folder, "token", SECRET * 4)
    config = written(folder, "mine.toml", f'[alerts.webhook]\nheaders = {{ X = "${{file:{secrets}:a}}" }}')
    lines = warnings(config, of_client, serve__http__token_file=str(token))
    assert [line.partition(" holds")[0] for line in lines] == [str(of_client), str(secrets), str(token)]
    reference = f"${{file:{secrets}:a}}"
    jaas = f'X required username="me" password="{reference}";'
    of_client.write_text(f"ssl.key.password={reference}\nsasl.jaas.config={jaas}\n")
    secrets.chmod(0o600)
    token.chmod(0o400)
    assert warnings(config, of_client, serve__http__token_file=str(token)) == []


@pytest.mark.timeout(20)
def test_what_can_be_read_once_or_is_gone_is_not_read_again(folder: Path) -> None:
    settings, pipe = read_settings(), folder / "pipe"
    os.mkfifo(pipe)
    assert exposed_secrets(settings, pipe, pipe) == []
    assert exposed_secrets(settings, folder / "gone", folder / "gone") == []
    damaged = written(folder, "damaged", "x = \\u00\xff")
    assert exposed_secrets(settings, damaged, damaged) == []


# --- in plain text ---------------------------------------------------------------------------------------

TOKENS_URL = "sasl.oauthbearer.token.endpoint.url"
PLAIN = {
    "password of a hook": {"alerts__webhook__url": f"http://user:{SECRET}@hooks.example/"},
    "header of a hook": {
        "alerts__webhook__url": "http://hooks.example/",
        "alerts__webhook__headers": {"X": "y"},
    },
    "header for Alertmanager": {
        "alerts__alertmanager__url": "http://10.0.0.1:9093",
        "alerts__alertmanager__headers": {"X": "y"},
    },
    "tokens": {"source__client": {TOKENS_URL: "http://idp.example/token"}},
    "SASL": {
        "source__bootstrap_servers": "localhost:9092,SASL_PLAINTEXT://kafka-1:9092",
        "source__client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
    },
}
NOT_PLAIN = {
    "https": {"alerts__webhook__url": f"https://user:{SECRET}@hooks.example/"},
    "no secret": {"alerts__alertmanager__url": "http://alertmanager:9093"},
    "loopback": {"alerts__webhook__url": f"http://user:{SECRET}@127.0.0.1:8080/"},
    "loopback of IPv6": {"alerts__webhook__url": f"http://user:{SECRET}@[::1]:8080/"},
    "tokens of this machine": {"source__client": {TOKENS_URL: "http://localhost/token"}},
    "SASL on this machine": {
        "source__bootstrap_servers": "localhost:9092,[::1]:9092",
        "source__client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
    },
    "SCRAM": {
        "source__bootstrap_servers": "kafka-1:9092",
        "source__client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"},
    },
}


@pytest.mark.parametrize("options", PLAIN.values(), ids=PLAIN.keys())
def test_a_password_in_plain_text(options: dict[str, Any]) -> None:
    (line,) = warnings(**options)
    assert "in plain text: use" in line
    assert SECRET not in line


@pytest.mark.parametrize("options", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
def test_what_no_network_sees_is_not_warned_of(options: dict[str, Any]) -> None:
    assert warnings(**options) == []
