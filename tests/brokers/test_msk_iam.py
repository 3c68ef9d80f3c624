"""AWS IAM: both forms of AWS's settings mean the same, and what only one client could follow is refused."""

import subprocess
import sys
from typing import Any

import pytest

from streaming.brokers.client_settings import java_client_settings, java_needs, librdkafka_settings
from streaming.brokers.jaas import JaasEntry, read_jaas, written_jaas
from streaming.brokers.msk_iam import read_msk_iam
from streaming.brokers.oauthbearer import LOGIN_MODULE
from streaming.model.errors import MisuseError
from streaming.settings.model import SourceSettings
from streaming.settings.reading import read_settings

AWS = "software.amazon.msk.auth.iam"
LOGIN, CLIENT = "sasl.login.callback.handler.class", "sasl.client.callback.handler.class"
BROKERS = "b-1.mine.ab12cd.c2.kafka.eu-west-1.amazonaws.com:9098"

OF_MECHANISM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{AWS}.IAMLoginModule required;",
    CLIENT: f"{AWS}.IAMClientCallbackHandler",
}
OF_OAUTHBEARER = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.jaas.config": f"{LOGIN_MODULE} required;",
    LOGIN: f"{AWS}.IAMOAuthBearerLoginCallbackHandler",
}
FORMS = {
    "the mechanism": OF_MECHANISM,
    "OAUTHBEARER": OF_OAUTHBEARER,
    "OAUTHBEARER with both handlers": {**OF_OAUTHBEARER, CLIENT: OF_OAUTHBEARER[LOGIN]},
    "no options": {name: value for name, value in OF_MECHANISM.items() if name != "sasl.jaas.config"},
}


def source(client: dict[str, str], servers: str = BROKERS) -> SourceSettings:
    return read_settings(options={"source.client": client, "source.bootstrap_servers": servers}).source


def with_options(client: dict[str, str], **options: str) -> dict[str, str]:
    module = read_jaas(client["sasl.jaas.config"]).module
    return {**client, "sasl.jaas.config": written_jaas(JaasEntry(module, options))}


@pytest.mark.parametrize("client", FORMS.values(), ids=FORMS.keys())
def test_both_forms_are_oauthbearer_for_both_clients(client: dict[str, str]) -> None:
    java = dict(java_client_settings(source(client)))
    entry = read_jaas(java.pop("sasl.jaas.config"))
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        LOGIN: f"{AWS}.IAMOAuthBearerLoginCallbackHandler",
        "bootstrap.servers": BROKERS,
    }
    assert (entry.module, [*entry.options]) == (LOGIN_MODULE, ["login"])
    translated = librdkafka_settings({**client, "bootstrap.servers": BROKERS})
    assert callable(translated.pop("oauth_cb"))
    assert translated == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "bootstrap.servers": BROKERS,
    }


def test_only_this_sign_in_needs_its_jar_and_a_region() -> None:
    assert java_needs(source(OF_MECHANISM)).jar_sets == ("msk-iam",)
    assert java_needs(source(OF_MECHANISM)).properties == {"aws.region": "eu-west-1"}
    assert java_needs(source({})).jar_sets == ()
    assert java_needs(source({})).properties == {}


@pytest.mark.parametrize("client", [OF_MECHANISM, OF_OAUTHBEARER])
def test_a_profile_or_a_role_is_the_only_source_of_credentials_for_java(client: dict[str, str]) -> None:
    def options(**given: str) -> dict[str, str]:
        settings = java_client_settings(source(with_options(client, **given)))
        return {k: v for k, v in read_jaas(settings["sasl.jaas.config"]).options.items() if k != "login"}

    assert options(awsProfileName="my-profile") == {
        "awsProfileName": "my-profile",
        "awsAddDefaultProviders": "false",
    }
    assert options(awsRoleArn="arn:1", awsAddDefaultProviders="false") == {
        "awsRoleArn": "arn:1",
        "awsRoleSessionName": "aws-msk-iam-auth",
        "awsAddDefaultProviders": "false",
    }
    named = {"awsRoleArn": "arn:1", "awsRoleSessionName": "me", "awsStsRegion": "eu-west-3"}
    assert named.items() <= options(**named).items()
    assert options(awsDebugCreds="true", awsMaxRetries="1") == {"awsDebugCreds": "true", "awsMaxRetries": "1"}


def test_each_reading_of_java_has_a_login_of_its_own() -> None:
    first, second = (java_client_settings(source(OF_MECHANISM))["sasl.jaas.config"] for _ in range(2))
    assert first != second


REGIONS = {
    "the brokers'": (BROKERS, {}, "eu-west-1"),
    "the brokers', not that of the environment": (BROKERS, {"AWS_REGION": "us-east-1"}, "eu-west-1"),
    "that of several brokers": (f"{BROKERS}, SASL_SSL://{BROKERS.replace('b-1', 'b-2')}", {}, "eu-west-1"),
    "serverless": ("boot-ab12.c1.kafka-serverless.us-gov-west-1.amazonaws.com:9098", {}, "us-gov-west-1"),
    "public access": ("b-1-public.x.c2.kafka.ap-south-1.amazonaws.com:9198", {}, "ap-south-1"),
    "China": ("b-1.x.c2.kafka.cn-north-1.amazonaws.com.cn:9098", {}, "cn-north-1"),
    "another name": ("kafka.internal:9098", {"AWS_REGION": "eu-north-1"}, "eu-north-1"),
    "a name that only begins like AWS's": (
        "b-1.x.kafka.us-east-1.amazonaws.com.internal:9098",
        {"AWS_REGION": "eu-north-1"},
        "eu-north-1",
    ),
    "a region within another name": (
        "kafka.us-east-1.internal:9098",
        {"AWS_REGION": "eu-north-1"},
        "eu-north-1",
    ),
}


@pytest.mark.parametrize(("servers", "environment", "region"), REGIONS.values(), ids=REGIONS.keys())
def test_the_region_is_that_in_the_names_of_brokers_else_of_the_environment(
    servers: str, environment: dict[str, str], region: str
) -> None:
    client = {**OF_MECHANISM, "bootstrap.servers": servers}
    assert read_msk_iam(client, environment).region == region


REFUSED = {
    "no region": (OF_MECHANISM, "kafka:9098", {}, r"found neither\. Set AWS_REGION"),
    "no real region": (OF_MECHANISM, "kafka:9098", {"AWS_REGION": "x -Dy"}, r"found 'x -Dy'"),
    "two regions": (
        OF_MECHANISM,
        f"{BROKERS},{BROKERS.replace('eu-west', 'us-east')}",
        {},
        r"expected brokers of one AWS region, found eu-west-1, us-east-1",
    ),
    "another module": (
        {**OF_MECHANISM, "sasl.jaas.config": f"{LOGIN_MODULE} required;"},
        BROKERS,
        {},
        rf"sasl\.jaas\.config: expected {AWS}\.IAMLoginModule, found",
    ),
    "no handler": (
        {**OF_MECHANISM, CLIENT: ""},
        BROKERS,
        {},
        rf"{CLIENT}: expected .*IAMClient.*found nothing",
    ),
    "another handler": ({**OF_OAUTHBEARER, CLIENT: "x.Y"}, BROKERS, {}, rf"{CLIENT}: expected .*found x\.Y"),
    "an external id": (
        with_options(OF_MECHANISM, awsRoleArn="a", awsRoleExternalId="s3cr"),
        BROKERS,
        {},
        r"awsRoleExternalId is not supported: only Java.*external_id",
    ),
    "keys of the role": (
        with_options(OF_MECHANISM, awsRoleArn="a", awsRoleSecretAccessKey="s3cr"),
        BROKERS,
        {},
        r"awsRoleSecretAccessKey is not supported.*source_profile",
    ),
    "FIPS": (with_options(OF_MECHANISM, awsShouldUseFips="true"), BROKERS, {}, r"AWS_USE_FIPS_ENDPOINT=true"),
    "a provider of the region": (
        with_options(OF_MECHANISM, awsMskRegionProvider="x.Y"),
        BROKERS,
        {},
        r"awsMskRegionProvider is not supported",
    ),
    "a misspelt option": (with_options(OF_MECHANISM, awsProfile="x"), BROKERS, {}, r"found 'awsProfile'"),
    "other credentials as well": (
        with_options(OF_MECHANISM, awsProfileName="x", awsAddDefaultProviders="true"),
        BROKERS,
        {},
        r"awsAddDefaultProviders: expected false, found 'true'",
    ),
    "a profile and a role": (
        with_options(OF_MECHANISM, awsProfileName="x", awsRoleArn="y"),
        BROKERS,
        {},
        r"awsProfileName or awsRoleArn, found both.*role_arn",
    ),
    "a session without a role": (
        with_options(OF_MECHANISM, awsRoleSessionName="x"),
        BROKERS,
        {},
        r"expected awsRoleArn with awsRoleSessionName, found none",
    ),
}


@pytest.mark.parametrize(
    ("client", "servers", "environment", "message"), REFUSED.values(), ids=REFUSED.keys()
)
def test_what_the_two_clients_cannot_both_follow_is_refused_by_name(
    client: dict[str, str], servers: str, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(MisuseError, match=message) as raised:
        read_msk_iam({**client, "bootstrap.servers": servers}, environment)
    assert "s3cr" not in str(raised.value)


def test_without_the_package_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    monkeypatch.delitem(sys.modules, "streaming.brokers.msk_tokens", raising=False)
    with pytest.raises(MisuseError, match=r"pip install aws-msk-iam-sasl-signer-python$"):
        librdkafka_settings({**OF_MECHANISM, "bootstrap.servers": BROKERS})


def test_other_sign_ins_load_nothing_of_aws() -> None:
    client: dict[str, Any] = {"sasl.mechanism": "PLAIN"}
    program = (
        "import sys; from streaming.brokers.client_settings import librdkafka_settings;"
        f"librdkafka_settings({client}); print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert not {"boto3", "botocore", "aws_msk_iam_sasl_signer"} & set(loaded.split())
    assert "streaming.brokers.msk_iam" in loaded.split()
