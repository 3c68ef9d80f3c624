"""Signing in with tokens of a real Keycloak: they are renewed, and the job outlasts a Keycloak that hangs.

Only `make test-sign-in` runs this (it sets SIGN_IN). Keycloak is downloaded once, from Maven Central.
"""

import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kafka_clients as kafka
import pytest
from certificates import CertificateAuthority
from client_programs import CACHE
from kafka_versions import KafkaVersion
from oauth_broker import FollowingJob, oauth_broker, oauth_client, options
from pyspark.sql import SparkSession
from running_job import RunningJob
from test_secured import listed_rights

from streaming.brokers.facts import AccessRefusedError
from streaming.demo.local_broker import free_ports
from streaming.jvm.java import find_java

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif("SIGN_IN" not in os.environ, reason="`make test-sign-in` runs it"),
]

VERSION = "26.7.3"
NAME = f"keycloak-quarkus-dist-{VERSION}.zip"
ADDRESS = f"https://repo1.maven.org/maven2/org/keycloak/keycloak-quarkus-dist/{VERSION}/{NAME}"
SHA256 = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"

CLIENT, SECRET, AUDIENCE = "offsetlake", "battery-staple-5519", "kafka"
REALM: dict[str, Any] = {
    "realm": "kafka",
    "enabled": True,
    "accessTokenLifespan": 10,  # seconds
    "clients": [
        {
            "clientId": CLIENT,
            "secret": SECRET,
            "serviceAccountsEnabled": True,
            "standardFlowEnabled": False,
            "protocolMappers": [
                {
                    "name": "audience",
                    "protocol": "openid-connect",
                    "protocolMapper": "oidc-audience-mapper",
                    "config": {"included.custom.audience": AUDIENCE, "access.token.claim": "true"},
                }
            ],
        }
    ],
}
PASSWORD = "admin-of-a-test"


class Keycloak:
    """A Keycloak with the realm."""

    def __init__(self, port: int, pid: int, trust: ssl.SSLContext) -> None:
        self.pid, self._trust = pid, trust
        self._base = f"https://127.0.0.1:{port}"

    @property
    def issuer(self) -> str:
        return f"{self._base}/realms/kafka"

    def url(self, name: str) -> str:
        return f"{self.issuer}/protocol/openid-connect/{name}"

    def is_ready(self) -> bool:
        try:
            return bool(self._ask(self.issuer))
        except OSError:
            return False

    def change_secret(self) -> None:
        """Give the client another secret, as its administrator does."""
        form = f"grant_type=password&client_id=admin-cli&username=admin&password={PASSWORD}".encode()
        token = self._ask(f"{self._base}/realms/master/protocol/openid-connect/token", form)["access_token"]
        clients = f"{self._base}/admin/realms/kafka/clients"
        [client] = self._ask(f"{clients}?clientId={CLIENT}", token=token)
        self._ask(f"{clients}/{client['id']}/client-secret", b"", token=token)

    def _ask(self, url: str, body: bytes | None = None, *, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=30, context=self._trust) as answer:
            return json.load(answer)


def downloaded() -> Path:
    """Return the archive of Keycloak, from the cache of the tests if it is there."""
    file = CACHE.parent / "keycloak" / NAME
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        with urllib.request.urlopen(ADDRESS, timeout=60) as answer, part.open("wb") as to:
            shutil.copyfileobj(answer, to)
        part.replace(file)
    with file.open("rb") as content:
        assert hashlib.file_digest(content, "sha256").hexdigest() == SHA256, file
    return file


@pytest.fixture
def ca() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def keycloak(tmp_path: Path, ca: CertificateAuthority) -> Iterator[Keycloak]:
    with running_keycloak(tmp_path / "keycloak", ca) as running:
        yield running


@contextmanager
def running_keycloak(folder: Path, ca: CertificateAuthority) -> Iterator[Keycloak]:
    shutil.unpack_archive(downloaded(), folder)
    home = folder / NAME.removesuffix(".zip").replace("-quarkus-dist", "")
    (home / "data" / "import").mkdir(parents=True)
    (home / "data" / "import" / "realm.json").write_text(json.dumps(REALM))
    certificate, trusted = (
        ca.write_pem(folder / "keycloak.pem", "keycloak"),
        ca.write_trusted(folder / "ca.pem"),
    )
    [port, http_port, management_port] = free_ports(3)
    command = [
        *("sh", str(home / "bin" / "kc.sh"), "start-dev", "--import-realm"),
        *(f"--https-port={port}", f"--http-port={http_port}", "--http-host=127.0.0.1"),
        *(f"--https-certificate-file={certificate}", f"--https-certificate-key-file={certificate}"),
        f"--http-management-port={management_port}",
    ]
    environment = {
        **os.environ,
        "JAVA": str(find_java()),
        "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
        "KC_BOOTSTRAP_ADMIN_PASSWORD": PASSWORD,
    }
    with (folder / "keycloak.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder
        )
    try:
        running = Keycloak(port, process.pid, ssl.create_default_context(cafile=str(trusted)))
        kafka.wait_until(running.is_ready, f"Keycloak ({folder / 'keycloak.log'})", timeout_s=240)
        yield running
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_job_follows_with_tokens_of_keycloak(
    keycloak: Keycloak,
    ca: CertificateAuthority,
    kafka_version: KafkaVersion,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    with oauth_broker(
        tmp_path / "broker",
        kafka_version,
        ca=ca,
        jwks_url=keycloak.url("certs"),
        issuer=keycloak.issuer,
        audience=AUDIENCE,
        sasl__oauthbearer__sub__claim__name="azp",  # the client id: `sub` is a UUID
    ) as secured:
        secured.allow_only(CLIENT, *listed_rights())
        client = oauth_client(secured, keycloak.url("token"), CLIENT, SECRET)
        client["sasl.oauthbearer.sub.claim.name"] = "azp"
        job = RunningJob(spark, secured.bootstrap_servers, tmp_path, options=options(client))
        with FollowingJob(job, secured) as running:
            began = time.monotonic()
            offset = 2
            running.follows(offset)
            while time.monotonic() - began < 40:  # four lives of a token
                offset += 1
                running.follows(offset)
                time.sleep(2)
            print("tokens were renewed:", job.said)
            os.killpg(keycloak.pid, signal.SIGSTOP)
            running.says("Waiting for the brokers")
            os.killpg(keycloak.pid, signal.SIGCONT)
            running.follows(offset + 1)
            print("Keycloak hung, and is back:", *job.said, sep="\n  ")
            keycloak.change_secret()
            error = running.ends()
            print("its secret is another one:", error)
    assert isinstance(error, AccessRefusedError)
    assert 'HTTP status 401, {"error":"unauthorized_client"' in str(error)
    assert SECRET not in " ".join([str(error), *job.said])
