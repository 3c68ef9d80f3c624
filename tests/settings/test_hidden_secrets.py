"""A secret of a receiver occurs nowhere: neither in errors nor on the console, in tables or in `status`."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest
from alert_tables import DAY, HOUR, RETENTION, Lake
from http_receiver import HttpReceiver, running_receiver

from streaming.alerts.delivery import Notifier
from streaming.alerts.listing import describe_alerts
from streaming.alerts.receivers import DeliveryError, Webhook, post
from streaming.alerts.table import AlertTable, TrackedEpisode
from streaming.common.http_values import shown_url, without_user
from streaming.common.times import now_ms
from streaming.jvm.jars import _proxy_options
from streaming.model.errors import MisuseError
from streaming.settings.model import WebhookSettings
from streaming.settings.reading import read_settings
from streaming.settings.shown import describe

CANARY = "c4n4ry"
RECEIVERS = ("webhook", "alertmanager")


@pytest.fixture
def hook() -> Iterator[HttpReceiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Tables with news that no receiver has been told of, written by a job that runs no more."""
    lake = Lake(tmp_path / "lake", start=now_ms() - HOUR)
    lake.commit("billing", at=lake.now - RETENTION + DAY)
    lake.evaluate(receivers=["webhook"])
    return lake


# --- at start --------------------------------------------------------------------------------------------

HEADER_VALUES = {
    "line end of a mounted file": f"Bearer {CANARY}\n",
    "line end of Windows": f"Bearer {CANARY}\r\n",
    "folded line": f"Bearer\n {CANARY}",
    "control character": f"Bearer {CANARY}\0",
    "deleted character": f"Bearer {CANARY}\x7f",
    "other than Latin-1": f"Bearer {CANARY}\u0101",
    "bytes that are no text": f"Bearer {CANARY}\udc80",
}
ADDRESSES = {
    "line end of a mounted file": f"https://hooks.example/{CANARY}\n",
    "blank": f"https://hooks.example/{CANARY} x",
    "control character": f"https://hooks.example/{CANARY}\x01",
    "other than ASCII": f"https://hooks.example/{CANARY}\u00e9",
    "control character in the password": f"https://user:{CANARY}\t@hooks.example/",
    "# in the password": f"https://user:{CANARY}#1@hooks.example/",
    "/ in the password": f"https://user:{CANARY}/1@hooks.example/",
    "? in the password": f"https://user:{CANARY}?1@hooks.example/",
    "@ in the password": f"https://user:1@{CANARY}@hooks.example/",
    "password that looks like a port": f"https://{CANARY}:12#1@hooks.example/",
    "port that is none": f"https://hooks.example:{CANARY}/",
    "port above all": f"https://hooks.example:65536/{CANARY}",
    "half a bracket": f"https://[{CANARY}/",
    "no scheme": f"user:{CANARY}@hooks.example",
    "other than ASCII in the host": f"https://{CANARY}.\u0101.example",
}


@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("value", HEADER_VALUES.values(), ids=HEADER_VALUES.keys())
def test_headers_that_no_request_can_carry_are_refused_and_not_shown(receiver: str, value: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read_settings(options={f"alerts.{receiver}.headers": {"Authorization": value}})
    message = str(raised.value)
    assert f"setting 'alerts.{receiver}.headers' expects headers" in message
    assert "as Authorization" in message
    assert CANARY not in message
    assert ("with a trailing newline" in message) == value.endswith("\n")


def test_names_of_headers_that_no_request_can_carry_are_refused_and_not_shown() -> None:
    with pytest.raises(MisuseError) as raised:
        read_settings(options={"alerts.webhook.headers": {f"Authorization: {CANARY}": "x"}})
    assert "a name that no header can have" in str(raised.value)
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES.keys())
def test_addresses_that_can_be_misread_are_refused_and_not_shown(receiver: str, address: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read_settings(options={f"alerts.{receiver}.url": address})
    message = str(raised.value)
    assert f"setting 'alerts.{receiver}.url' expects an address such as https://host:port/path" in message
    assert CANARY not in message
    assert ("with a trailing newline" in message) == address.endswith("\n")
    assert CANARY not in shown_url(address)


OF_OTHER_TYPES = {
    "alerts.webhook.url": [f"https://hooks.example/{CANARY}"],
    "alerts.webhook.headers": f"Bearer {CANARY}",
    "tables.storage_options": [CANARY],
    "source.client": CANARY,
    "spark.conf": CANARY,
    "source.bootstrap_servers": f"user:{CANARY}@broker:9092",
}


@pytest.mark.parametrize(("name", "value"), OF_OTHER_TYPES.items())
def test_what_is_of_another_type_or_has_a_user_is_not_shown(name: str, value: object) -> None:
    with pytest.raises(MisuseError, match=f"setting '{name}' expects .*, found something else") as raised:
        read_settings(options={name: value})
    assert CANARY not in str(raised.value)


def test_two_variables_of_one_setting_do_not_show_their_values() -> None:
    variables = {"OFFSETLAKE_TABLE_ROOT": f"s3://a:{CANARY}@b", "OFFSETLAKE_TABLES_ROOT": CANARY}
    with pytest.raises(MisuseError, match="expected one of them, or the same value") as raised:
        read_settings(environment=variables)
    assert CANARY not in str(raised.value)


GOOD_ADDRESSES = {
    "https://hooks.example": "https://hooks.example",
    "http://127.0.0.1:9093/": "http://127.0.0.1:9093/...",
    f"https://user:{CANARY}%23%2F%3F%40@hooks.example:8443/x": "https://hooks.example:8443/...",
    f"https://user:\u00e9[{CANARY}]\\@hooks.example": "https://hooks.example",
    f"https://{CANARY}@[::1]:8443?x={CANARY}": "https://[::1]:8443/...",
    f"https://hooks_1.example/a%40b/{CANARY}#x": "https://hooks_1.example/...",
}


@pytest.mark.parametrize(("address", "shown"), GOOD_ADDRESSES.items())
def test_other_addresses_are_taken_and_shown_as_far_as_their_host(address: str, shown: str) -> None:
    settings = read_settings(options={"alerts.webhook.url": address})
    assert f'alerts.webhook.url = "{shown}"' in describe(settings)
    assert CANARY not in "".join(describe(settings))
    plain, headers = without_user(address)
    assert ("@" in address) == bool(headers)
    assert plain.startswith(shown.removesuffix("/..."))


@pytest.mark.parametrize(
    "value",
    [
        f"http://user:{CANARY}@proxy.example:3128",
        f"http://{CANARY}@proxy.example:3128",
        f"socks5://user:{CANARY}/x@proxy.example",
    ],
)
def test_other_settings_that_hold_an_address_with_a_user_are_hidden(value: str) -> None:
    lines = describe(read_settings(options={"tables.storage_options": {"proxy_url": value}}))
    assert 'tables.storage_options.proxy_url = "(hidden)"' in lines


def test_other_addresses_are_still_shown() -> None:
    root = "abfss://container@account.dfs.core.windows.net/lake"
    assert f'tables.root = "{root}"' in describe(read_settings(options={"tables.root": root}))


def test_a_proxy_that_can_be_misread_is_refused_and_not_shown() -> None:
    with pytest.raises(MisuseError, match="HTTPS_PROXY: expected an address such as") as raised:
        _proxy_options({"HTTPS_PROXY": f"http://user:{CANARY}#x@proxy.example:3128"})
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize("address", ["proxy.example:3128", "http://user:secret@proxy.example:3128"])
def test_a_proxy_needs_no_scheme(address: str) -> None:
    options = ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]
    assert _proxy_options({"HTTPS_PROXY": address}) == options


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy"])
def test_hosts_without_proxy_are_those_of_other_programs_in_java_s_words(name: str) -> None:
    proxy = {"HTTPS_PROXY": "proxy.example:3128"}
    given = " mirror.example,.internal, *.lan,,[::1]:80,::1,127.0.0.1:8080"
    *_, direct = _proxy_options({**proxy, name: given})
    hosts = ["mirror.example", "internal", "lan", "[::1]", "::1", "127.0.0.1"]
    assert direct == "-Dhttp.nonProxyHosts=" + "|".join(f"{host}|*.{host}" for host in hosts)
    assert _proxy_options({**proxy, name: "*"})[2:] == ["-Dhttp.nonProxyHosts=*"]
    assert _proxy_options({**proxy, name: " , "})[2:] == []
    assert _proxy_options({name: "mirror.example"}) == []


# --- while it runs ---------------------------------------------------------------------------------------

UNTOLD = {
    "header": ("http://{host}/", {"Authorization": f"{CANARY}\n"}),
    "header of other characters": ("http://{host}/", {"Authorization": f"{CANARY}\u0101"}),
    "name of a header": ("http://{host}/", {f"X{CANARY}\n": "x"}),
    "path": (f"http://{{host}}/{CANARY}\x01", {}),
    "path of other characters": (f"http://{{host}}/{CANARY}\u0101", {}),
    "port": (f"http://{{host}}{CANARY}/", {}),
    "password": (f"http://user:{CANARY}#1@{{host}}/", {}),
    "brackets": (f"http://[{CANARY}/", {}),
    "scheme": (f"{CANARY}://{{host}}/", {}),
    "host": (f"http://{CANARY}\u2100.example/", {}),
}


@pytest.mark.parametrize(("url", "headers"), UNTOLD.values(), ids=UNTOLD.keys())
def test_what_cannot_be_sent_is_named_by_its_class_alone(
    lake: Lake, hook: HttpReceiver, said: list[str], url: str, headers: dict[str, str]
) -> None:
    """As if a check at start had been forgotten."""
    url = url.format(host=hook.url.removeprefix("http://").removesuffix("/hook"))
    receiver = Webhook(WebhookSettings(url=url, headers=MappingProxyType(headers)), 1_000)
    notifier = Notifier(AlertTable(lake.tables), receiver, clock=lambda: lake.now)
    assert not notifier.deliver()
    assert hook.bodies == []
    (line,) = said
    assert "Error" in line or "InvalidURL" in line
    assert CANARY not in line
    assert_hidden(lake)


def test_an_unexpected_error_is_named_by_its_class_alone(lake: Lake, said: list[str]) -> None:
    class Leaking:
        name, batch_size, repeat_every_ms, most_of_rule = "webhook", 1, None, None

        def send(self, news: list[TrackedEpisode], now: int) -> None:
            raise RuntimeError(CANARY)

    notifier = Notifier(AlertTable(lake.tables), Leaking(), clock=lambda: lake.now)
    assert not notifier.deliver()
    assert "RuntimeError" in said[0]
    assert CANARY not in said[0]
    assert_hidden(lake)


def test_an_answer_is_not_repeated(hook: HttpReceiver) -> None:
    hook.status, hook.location = 302, f"gopher://[{CANARY}"
    with pytest.raises(DeliveryError, match="HTTP status 302") as raised:
        post(hook.url, {}, {}, 5_000)
    assert CANARY not in str(raised.value)


def test_why_nobody_could_be_reached_is_said_in_words() -> None:
    with pytest.raises(DeliveryError, match=r"ConnectionRefusedError \(Connection refused\)"):
        post("http://127.0.0.1:1/", {}, {}, 1_000)


def assert_hidden(lake: Lake) -> None:
    """The canary stands in no row, no file and no line of `status`, and what went wrong does."""
    rows = lake.tables.delta("alerts").to_pyarrow_table().to_pylist()
    assert "Error" in str(rows) or "InvalidURL" in str(rows)
    assert CANARY not in str(rows)
    assert CANARY not in "".join(describe_alerts(lake.tables))
    files = [file for file in Path(lake.tables.root).rglob("*") if file.is_file()]
    assert not [file for file in files if CANARY.encode() in file.read_bytes()]


# --- the command -----------------------------------------------------------------------------------------

CONFIG = """
[alerts]
log = "off"
[alerts.webhook]
url = "{url}"
[alerts.webhook.headers]
Authorization = "Bearer ${{env:HOOK_TOKEN}}"
"""


def offsetlake(cwd: Path, token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streaming.cli", *arguments],
        cwd=cwd,
        env={**os.environ, "HOOK_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_refuses_a_token_with_a_line_end_and_takes_it_without(
    lake: Lake, hook: HttpReceiver, tmp_path: Path
) -> None:
    (tmp_path / "alerts.toml").write_text(CONFIG.format(url=hook.url))
    evaluate = ("alerts", "--evaluate", "--table-root", lake.tables.root, "--config", "alerts.toml")
    ran = offsetlake(tmp_path, f"{CANARY}\n", *evaluate)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "alerts.toml, line 6: setting 'alerts.webhook.headers' expects headers" in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert CANARY not in ran.stderr
    ran = offsetlake(tmp_path, CANARY, *evaluate)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert {headers["Authorization"] for headers in hook.headers} == {f"Bearer {CANARY}"}
