"""The JVM of `offsetlake check` has what the job's has: jars, options and client settings."""

from pathlib import Path

from streaming.check.java_client import client_settings, java_command
from streaming.settings.reading import read_settings
from streaming.spark.source import GROUP_PREFIX, source_options

CONF = {
    "spark.jars": "file:///opt/iam.jar,/opt/other.jar",
    "spark.driver.extraClassPath": "/opt/extra.jar",
    "spark.driver.extraJavaOptions": "-Da=1 '-Db=2 3'",
}


def test_jars_and_options_of_the_user_are_there_after_the_connector() -> None:
    command = java_command(read_settings(options={"spark.conf": CONF}), [Path("/cache/connector")])
    paths = command[command.index("-cp") + 1].split(":")
    assert paths[:4] == ["/cache/connector/*", "/opt/extra.jar", "/opt/iam.jar", "/opt/other.jar"]
    assert paths[4].endswith("pyspark/jars/*")
    assert {"-Da=1", "-Db=2 3"} <= set(command)
    plain = java_command(read_settings(), [Path("/cache/connector")])
    assert len(plain[plain.index("-cp") + 1].split(":")) == 2


def test_the_consumer_has_the_settings_of_the_connector_s_and_can_neither_commit_nor_create() -> None:
    client = {"sasl.mechanism": "PLAIN", "enable.auto.commit": "true", "allow.auto.create.topics": "true"}
    source = read_settings(options={"source.client": client}).source
    settings = client_settings(source, 50)
    changed = {"enable.auto.commit", "allow.auto.create.topics"}
    for name, value in source_options(source, 50).items():
        plain = name.removeprefix("kafka.")
        if name != plain and plain not in changed:
            assert settings[plain] == value
    assert {settings[name] for name in changed} == {"false"}
    assert settings["isolation.level"] == "read_committed"
    assert settings["group.id"].startswith(f"{GROUP_PREFIX}-")


def test_the_sign_in_at_msk_has_its_jars_and_its_region() -> None:
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    servers = "b-1.lake.abc.c1.kafka.eu-west-1.amazonaws.com:9098"
    settings = read_settings(options={"source.client": client, "source.bootstrap_servers": servers})
    command = java_command(settings, [Path("/cache/connector"), Path("/cache/msk-iam")])
    assert "-Daws.region=eu-west-1" in command
    assert command[command.index("-cp") + 1].startswith("/cache/connector/*:/cache/msk-iam/*:")
