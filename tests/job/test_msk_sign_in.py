"""Signing in by AWS IAM: both clients sign tokens that AWS would accept, renew them, and say why they cannot.

There is no Amazon MSK here. A broker accepts the form of its tokens and keeps them; the tests check their
signatures.
"""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import kafka_clients as kafka
import pytest
from aws_endpoints import OF_INSTANCE, OF_STS, AwsEndpoints, aws_endpoints
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
from botocore.exceptions import BotoCoreError, ClientError
from command_process import output, running
from history_checks import table_offsets
from java_programs import java_classes, java_program
from kafka_versions import VERSIONS, KafkaVersion
from msk_token import MskToken
from test_secured import broker_at, write_properties

from streaming.brokers.client_log import ClientLog, Sign, SigningRefusedError
from streaming.brokers.client_settings import java_client_settings, java_needs, librdkafka_settings
from streaming.brokers.facts import AccessRefusedError, BrokerError, TokenRefusedError
from streaming.demo.local_broker import LocalBroker, free_ports
from streaming.jvm.jars import ensure_jars
from streaming.jvm.java import find_java
from streaming.settings.model import SourceSettings
from streaming.settings.reading import read_settings
from streaming.tables.tables import Tables

pytestmark = pytest.mark.broker

ON_ITS_OWN = pytest.mark.skipif("SIGN_IN" not in os.environ, reason="`make test-sign-in` runs it: it waits")
"""Tests that wait for tokens to be renewed and for outages to end: a minute each."""

AWS = "software.amazon.msk.auth.iam"
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OF_ENVIRONMENT = ("AKIAENVIRONMENT", "secret/of+environment", "session-of-environment")
OF_PROFILE = ("AKIAPROFILE", "secret/of+profile", None)
REGION = "eu-west-1"
OFTEN = """
job.heartbeat_every = "500ms"
source.topic_poll_every = "300ms"
source.connect_timeout = "4s"
"""


def client(options: str = "", *, form: str = "AWS_MSK_IAM") -> dict[str, str]:
    """The settings in either form of AWS's documentation."""
    if form == "AWS_MSK_IAM":
        module, handler = f"{AWS}.IAMLoginModule", "sasl.client.callback.handler.class"
        named = {handler: f"{AWS}.IAMClientCallbackHandler"}
    else:
        module, handler = LOGIN_MODULE, "sasl.login.callback.handler.class"
        named = {handler: f"{AWS}.IAMOAuthBearerLoginCallbackHandler"}
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": form,
        "sasl.jaas.config": f"{module} required {options};",
        **named,
    }


@pytest.fixture(autouse=True)
def nothing_of_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine, and no metadata service but that of a test."""
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


@pytest.fixture
def with_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(
        ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"), OF_ENVIRONMENT, strict=True
    ):
        monkeypatch.setenv(f"AWS_{name}", value)


@dataclass
class Msk:
    """A broker with the sign-in of Amazon MSK on its listener SASL_PLAINTEXT, and the tokens that it got."""

    broker: LocalBroker
    file: Path

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers_of("SASL_PLAINTEXT")

    def count(self) -> int:
        """Count the tokens, also equal ones."""
        return len(self.file.read_text().split()) if self.file.exists() else 0

    def tokens(self, *, java: bool, after: int = 0) -> list[MskToken]:
        """The different tokens of Java, or those of librdkafka, in order, of those after so many in all."""
        texts = (self.file.read_text().split() if self.file.exists() else [])[after:]
        found = [MskToken(text) for text in dict.fromkeys(texts)]
        return [token for token in found if token.is_of_java is java]

    def of_environment(self, *, java: bool, after: int) -> list[MskToken]:
        """Tokens with the key of the environment: clients of other tests may still sign in."""
        found = self.tokens(java=java, after=after)
        return [token for token in found if token.key == OF_ENVIRONMENT[0]]


@pytest.fixture(scope="module")
def msk(kafka_version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Msk]:
    folder = tmp_path_factory.mktemp("msk")
    listener = "listener.name.sasl_plaintext"
    overrides = {
        f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": "TokenRecorder",
        f"{listener}.oauthbearer.sasl.jaas.config": (
            f'{LOGIN_MODULE} required unsecuredLoginStringClaim_sub="unused" tokens="{folder / "tokens"}";'
        ),
        f"{listener}.oauthbearer.connections.max.reauth.ms": "2000",  # with the newest token of the client
    }
    broker = kafka_version.broker(
        folder / "broker",
        offsets_partitions=2,
        listeners=["SASL_PLAINTEXT"],
        overrides=overrides,
        classes=compiled("TokenRecorder", ensure_jars(kafka_version.jars)),
    )
    with broker:
        kafka.create_topics(broker.bootstrap_servers, {"orders": 2})
        kafka.commit_offsets(broker.bootstrap_servers, "billing", {("orders", 0): 5})
        yield Msk(broker, folder / "tokens")


def compiled(name: str, *jars: Path) -> Path:
    """Compile a Java class of the tests, or skip the test."""
    if not find_java().resolve().with_name("javac").exists():
        pytest.skip(f"{name}.java needs a JDK: this Java has no javac")
    return java_classes(name, jars)


# --- the job -----------------------------------------------------------------------------------------------


@ON_ITS_OWN
@pytest.mark.spark
@pytest.mark.slow
def test_the_job_signs_in_with_both_clients_renews_tokens_and_outlasts_missing_credentials(
    msk: Msk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follows(offset: int) -> None:
        kafka.commit_offsets(msk.broker.bootstrap_servers, "billing", {("orders", 0): offset})
        kafka.wait_until(
            lambda: offset_in(tmp_path) == offset, f"offset {offset} in the tables", timeout_s=240
        )

    def has_said(text: str) -> None:
        kafka.wait_until(lambda: text in output(tmp_path), text, timeout_s=120)
        assert process.poll() is None, output(tmp_path)

    before = msk.count()
    Tables(str(tmp_path / "warehouse")).create()
    credentials, refuse = tmp_path / "secrets" / "credentials", msk.file.with_name("refuse")
    credentials.parent.mkdir()
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    credentials.write_text(as_profile("default", *OF_ENVIRONMENT))
    often = {"sasl.login.refresh.buffer.seconds": "896", "sasl.login.refresh.min.period.seconds": "1"}
    write_properties(tmp_path / "client.properties", {**client('awsMaxRetries="0"'), **often})
    (tmp_path / "job.toml").write_text(OFTEN)
    files = ("--command-config", "client.properties", "--config", "job.toml")
    with running("run", "--bootstrap-server", msk.bootstrap, *files, cwd=tmp_path) as process:
        follows(6)
        kafka.wait_until(
            lambda: len(msk.of_environment(java=True, after=before)) >= 2, "Java to renew its token"
        )
        credentials.write_text("")
        refuse.touch()
        has_said("Signing in again")
        has_said("signing a token: NoCredentialsError: Unable to locate credentials")
        refuse.unlink()
        has_said("SdkClientException: Unable to load credentials")
        credentials.write_text(as_profile("default", *OF_ENVIRONMENT))
        follows(7)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0, output(tmp_path)
    of_librdkafka = msk.of_environment(java=False, after=before)
    assert of_librdkafka
    tokens = [*msk.tokens(java=True, after=before), *of_librdkafka]
    assert {token.region for token in tokens} == {REGION}
    assert all(token.is_signed_by(*OF_ENVIRONMENT) for token in tokens)
    credentials.unlink()
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"SdkClientException" in written
    for secret in (*OF_ENVIRONMENT[1:], *(token.text for token in tokens)):
        assert secret.encode() not in written


def as_profile(name: str, key: str, secret: str, session: str | None = None) -> str:
    """Write credentials as in ~/.aws/credentials."""
    last = "" if session is None else f"aws_session_token = {session}\n"
    return f"[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n{last}"


def offset_in(folder: Path) -> int | None:
    offsets = table_offsets(Tables(str(folder / "warehouse")))
    return next((one.offset for one in offsets.values()), None)


# --- librdkafka ------------------------------------------------------------------------------------------


@ON_ITS_OWN
def test_librdkafka_renews_its_token_and_goes_on_when_credentials_are_back(
    msk: Msk, with_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MSKAuthTokenProvider, "DEFAULT_TOKEN_EXPIRY_SECONDS", 5)
    before = msk.count()
    broker = broker_at(msk.bootstrap, client(form="OAUTHBEARER"), timeout="2s")

    def answers() -> bool:
        try:
            return broker.topic_facts(2) is not None
        except BrokerError as error:
            failures.append(error)
            return False

    failures: list[BrokerError] = []
    kafka.wait_until(
        lambda: answers() and len(msk.of_environment(java=False, after=before)) >= 3,
        "tokens to be renewed",
        timeout_s=60,
    )
    assert failures == []
    assert all(token.is_signed_by(*OF_ENVIRONMENT) for token in msk.of_environment(java=False, after=before))
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    kafka.wait_until(lambda: not answers() and len(failures) >= 4, "an outage", timeout_s=60)
    assert "(signing a token: PartialCredentialsError: Partial credentials" in str(failures[-1])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OF_ENVIRONMENT[1])
    kafka.wait_until(answers, "librdkafka to sign in again", timeout_s=60)
    assert not any(isinstance(failure, AccessRefusedError) for failure in failures)


@ON_ITS_OWN
def test_at_a_start_the_reason_is_said_also_if_aws_does_not_answer(
    msk: Msk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failure(options: str) -> str:
        with pytest.raises(BrokerError) as raised:
            broker_at(msk.bootstrap, client(options))
        return str(raised.value)

    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(2) as pool:
        environment = {**KEYS, **FILES, "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:{port}"}
        (tmp_path / "config").write_text(CONFIG)
        (tmp_path / "credentials").write_text(as_profile("mine", *OF_PROFILE))
        for key, value in environment.items():
            monkeypatch.setenv(key, value.format(folder=tmp_path, port=silent.getsockname()[1]))
        none, silence = pool.map(failure, ('awsProfileName="none"', 'awsProfileName="assumes"'))
    start = rf"^signing in at {msk.bootstrap}: expected a token within 10 s, found none \(signing a token: "
    assert re.search(rf"{start}ProfileNotFound: The config profile \(none\) could not be found", none)
    assert re.search(rf"{start}ReadTimeoutError: Read timeout on endpoint URL: ", silence)


# --- where credentials come from ---------------------------------------------------------------------------


@pytest.fixture
def aws() -> Iterator[AwsEndpoints]:
    with aws_endpoints() as endpoints:
        yield endpoints


ENDPOINTS = {"AWS_ENDPOINT_URL_STS": "{url}", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "{url}"}
KEYS = {"AWS_ACCESS_KEY_ID": OF_ENVIRONMENT[0], "AWS_SECRET_ACCESS_KEY": OF_ENVIRONMENT[1]}
FILES = {"AWS_CONFIG_FILE": "{folder}/config", "AWS_SHARED_CREDENTIALS_FILE": "{folder}/credentials"}
CONFIG = """
[profile assumes]
role_arn = arn:aws:iam::123456789012:role/of-profile
source_profile = mine
role_session_name = of-profile
external_id = 4711
"""
ROLE = 'awsRoleArn="arn:aws:iam::123456789012:role/mine"'

SOURCES = {
    "the environment": (
        "",
        {**KEYS, "AWS_SESSION_TOKEN": OF_ENVIRONMENT[2]},
        OF_ENVIRONMENT,
        {},
    ),
    "a profile": ('awsProfileName="mine"', {**FILES, **KEYS}, OF_PROFILE, {}),
    "a profile of the environment": ("", {**FILES, "AWS_PROFILE": "mine"}, OF_PROFILE, {}),
    "a profile that assumes a role": (
        'awsProfileName="assumes"',
        FILES,
        OF_STS,
        {"Action": "AssumeRole", "RoleSessionName": "of-profile", "ExternalId": "4711"},
    ),
    "a role": (
        f'{ROLE} awsRoleSessionName="me" awsStsRegion="eu-west-3"',
        KEYS,
        OF_STS,
        {"Action": "AssumeRole", "RoleArn": "arn:aws:iam::123456789012:role/mine", "RoleSessionName": "me"},
    ),
    "a web identity": (
        "",
        {
            "AWS_WEB_IDENTITY_TOKEN_FILE": "{folder}/identity",
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/pod",
            "AWS_ROLE_SESSION_NAME": "pod",
        },
        OF_STS,
        {"Action": "AssumeRoleWithWebIdentity", "WebIdentityToken": "identity-of-pod"},
    ),
    "the instance": ("", {"AWS_EC2_METADATA_DISABLED": "false"}, OF_INSTANCE, {}),
}
"""Options of the login module, the environment, whose credentials sign, and what STS was asked for."""

PROPERTIES = {
    "AWS_ACCESS_KEY_ID": "aws.accessKeyId",
    "AWS_SECRET_ACCESS_KEY": "aws.secretAccessKey",
    "AWS_SESSION_TOKEN": "aws.sessionToken",
    "AWS_PROFILE": "aws.profile",
    "AWS_CONFIG_FILE": "aws.configFile",
    "AWS_SHARED_CREDENTIALS_FILE": "aws.sharedCredentialsFile",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "aws.webIdentityTokenFile",
    "AWS_ROLE_ARN": "aws.roleArn",
    "AWS_ROLE_SESSION_NAME": "aws.roleSessionName",
    "AWS_EC2_METADATA_DISABLED": "aws.disableEc2Metadata",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT": "aws.ec2MetadataServiceEndpoint",
    "AWS_ENDPOINT_URL_STS": "aws.endpointUrlSts",
}
"""Java's names, as one JVM cannot have several environments."""


def environment_of(name: str, folder: Path, aws: AwsEndpoints) -> dict[str, str]:
    (folder / "config").write_text(CONFIG)
    (folder / "credentials").write_text(as_profile("mine", *OF_PROFILE))
    (folder / "identity").write_text("identity-of-pod")
    given = {**ENDPOINTS, "AWS_EC2_METADATA_DISABLED": "true", **SOURCES[name][1]}
    return {key: value.format(folder=folder, url=aws.url) for key, value in given.items()}


def source_of(name: str) -> SourceSettings:
    options = {"source.client": client(SOURCES[name][0]), "source.bootstrap_servers": "kafka:9098"}
    return read_settings(options=options).source


def sign_of(source: SourceSettings) -> Sign:
    found: Sign = librdkafka_settings(source.client)["oauth_cb"]
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_librdkafka_signs_with_the_credentials_of_every_source(
    name: str, aws: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in environment_of(name, tmp_path, aws).items():
        monkeypatch.setenv(key, value)
    text, expires_at = sign_of(source_of(name))("")
    token, (_, _, signer, asked) = MskToken(text), SOURCES[name]
    assert token.is_signed_by(*signer)
    assert expires_at == token.signed_at + 900
    assert all(asked.items() <= one.items() for one in aws.asked)
    assert len(aws.asked) == bool(asked)


def test_expired_credentials_of_the_environment_are_refused(
    with_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2026-01-01T00:00:00Z")
    with pytest.raises(SigningRefusedError) as raised:
        sign_of(source_of("the environment"))("")
    assert "still expired" in str(raised.value.__cause__)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AccessDenied", SigningRefusedError),
        ("ExpiredToken", SigningRefusedError),
        ("Throttling", ClientError),
        ("IDPCommunicationError", ClientError),
    ],
)
@pytest.mark.parametrize("name", ["a role", "a profile that assumes a role", "a web identity"])
def test_what_sts_refuses_is_a_refusal_and_nothing_else(
    name: str,
    code: str,
    kind: type[Exception],
    aws: AwsEndpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key, value in environment_of(name, tmp_path, aws).items():
        monkeypatch.setenv(key, value)
    aws.refusal = (code, "as the test wants")
    with pytest.raises(kind) as raised:
        sign_of(source_of(name))("")
    assert "as the test wants" in str(raised.value.__cause__ or raised.value)


@pytest.mark.more
@pytest.mark.slow
def test_refused_credentials_end_a_running_job_s_wait(
    with_credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens at the address: librdkafka asks for tokens all the same."""
    broker = broker_at("127.0.0.1:1", client(), timeout="15s")
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2026-01-01T00:00:00Z")
    with pytest.raises(TokenRefusedError, match="still expired"):
        broker.sign_in_again()
    with pytest.raises(AccessRefusedError, match="still expired"):
        broker.sign_in_again()
    monkeypatch.delenv("AWS_CREDENTIAL_EXPIRATION")
    broker.sign_in_again()


@pytest.mark.more
def test_java_signs_with_the_credentials_of_every_source(aws: AwsEndpoints, tmp_path: Path) -> None:
    jars = [ensure_jars(name) for name in (VERSIONS["3.9.2"].jars, "msk-iam")]  # the connector's release
    compiled("MskTokens", *jars)
    files = []
    for number, name in enumerate(SOURCES):
        source, files = source_of(name), [*files, tmp_path / f"{number}.properties"]
        of_jvm = {
            **{PROPERTIES[key]: value for key, value in environment_of(name, tmp_path, aws).items()},
            **java_needs(source).properties,
        }
        lines = {f"system.{key}": value for key, value in of_jvm.items()}
        lines |= {f"kafka.{key}": value for key, value in java_client_settings(source).items()}
        write_properties(files[-1], lines)
    ran = subprocess.run(
        java_program("MskTokens", jars, *map(str, files)), capture_output=True, text=True, check=True
    )
    for name, line in zip(SOURCES, ran.stdout.splitlines(), strict=True):
        assert not line.startswith("error"), (name, line)
        assert (name, MskToken(line).is_signed_by(*SOURCES[name][2])) == (name, True)
        assert (name, MskToken(line).region) == (name, REGION)
    wanted = [asked for _, _, _, asked in SOURCES.values() if asked]
    assert len(aws.asked) == len(wanted)
    assert all(asked.items() <= one.items() for asked, one in zip(wanted, aws.asked, strict=True))


# --- what is said ------------------------------------------------------------------------------------------


def denied(aws: AwsEndpoints) -> None:
    aws.refusal = (
        "AccessDenied",
        "User: arn:aws:iam::1:user/me is not authorized to perform: sts:AssumeRole",
    )


def wrong_secret(aws: AwsEndpoints) -> None:
    aws.refusal = (
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match.\n\nThe Canonical String for this request should "
        f"have been\n'POST\n/\n\nx-amz-security-token:{OF_ENVIRONMENT[2]}\n'",
    )


def gone(aws: AwsEndpoints) -> None:
    [aws.port] = free_ports(1)


PROBLEMS: Mapping[str, tuple[Callable[[AwsEndpoints], None], str]] = {
    "a role that may not be assumed": (
        denied,
        r"ClientError: .*AccessDenied.*me is not authorized to perform",
    ),
    "a wrong secret": (wrong_secret, r"ClientError: .*SignatureDoesNotMatch.* does not match\.$"),
    "no STS": (gone, r"EndpointConnectionError: Could not connect .*http://127\.0\.0\.1:\d+"),
}


@pytest.mark.parametrize(("make", "message"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_failure_of_sts_is_said_without_secrets(
    make: Callable[[AwsEndpoints], None],
    message: str,
    aws: AwsEndpoints,
    with_credentials: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(aws)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.url)
    log = ClientLog()
    with pytest.raises((BotoCoreError, SigningRefusedError)):
        log.signing(sign_of(source_of("a role")))("")
    assert re.search(rf"^signing a token: {message}", log.last), log.last
    assert not [secret for secret in OF_ENVIRONMENT[1:] if secret in log.last]
