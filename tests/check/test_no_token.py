"""`offsetlake check` without credentials of AWS: that is a finding, and Java's checks are still made."""

import os
from pathlib import Path

import pytest

from streaming.check import findings
from streaming.check.checks import checks
from streaming.common.times import now_ms
from streaming.settings.reading import read_settings

pytestmark = [pytest.mark.slow, pytest.mark.more]  # it waits for ten seconds

AWS = "software.amazon.msk.auth.iam"
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f'{AWS}.IAMLoginModule required awsMaxRetries="0";',
    "sasl.client.callback.handler.class": f"{AWS}.IAMClientCallbackHandler",
}


def test_without_credentials_of_aws_each_check_has_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in os.environ:
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    source = {"bootstrap_servers": "127.0.0.1:1", "client": CLIENT, "connect_timeout": "2s"}
    settings = read_settings(options={f"source.{name}": value for name, value in source.items()})
    found = {one.check: one for one in checks(settings, now_ms)}
    assert [*found] == [findings.LIBRDKAFKA, *findings.OF_SIGN_IN, findings.JAVA, *findings.OF_JAVA]
    failed = {check: one.found for check, one in found.items() if one.result == "failed"}
    assert [*failed] == [findings.LIBRDKAFKA, findings.JAVA]
    assert "signing a token: NoCredentialsError" in failed[findings.LIBRDKAFKA]
    assert "SdkClientException" in failed[findings.JAVA]
    assert {one.result for one in found.values()} == {"failed", "unknown"}
