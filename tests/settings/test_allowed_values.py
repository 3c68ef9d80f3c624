"""What `--show-settings` shows of settings of other programs: values that are known to be harmless, alone."""

import re

import pytest

from streaming.model.errors import MisuseError
from streaming.settings.client_names import KNOWN, PASSWORDS
from streaming.settings.reading import read_settings
from streaming.settings.secrets import looks_secret
from streaming.settings.shown import describe

CANARY = "c4n4ry"

HIDDEN = {
    "tables.storage_options": {
        "sas": f"?sig={CANARY}",
        "account_sas": f"sv=1&sig={CANARY}",
        "azure_storage_sas": CANARY,
        "accountkey": CANARY,
        "azure_storage_accountkey": CANARY,
        "passphrase": CANARY,
        "masterkey": CANARY,
        "authorization": f"Bearer {CANARY}",
        "pat": CANARY,
        "google_service_account": f'{{"private_key": "{CANARY}"}}',
        "an.unknown.option": CANARY,
        "proxy_url": f"http://user:{CANARY}@proxy:1",
        "region": f"password={CANARY}",
    },
    "source.client": {
        "ssl.keystore.certificate.chain": CANARY,
        "sasl.oauthbearer.client.assertion": CANARY,
        "sasl.login.callback.x": CANARY,
        "basic.auth.user.info": f"u:{CANARY}",
        "sasl.oauthbearer.token.endpoint.url": f"https://user:{CANARY}@idp/token",
    },
    "spark.conf": {
        "spark.an.unknown.name": CANARY,
        "spark.app.title": f"x {CANARY}",
        "spark.sql.catalog.mine.uri": CANARY,
    },
}


@pytest.mark.parametrize(
    ("table", "name"), [(table, name) for table, values in HIDDEN.items() for name in values]
)
def test_a_value_that_is_not_known_to_be_harmless_is_hidden(table: str, name: str) -> None:
    lines = describe(read_settings(options={table: {name: HIDDEN[table][name]}}))
    assert CANARY not in "\n".join(lines)
    assert (
        f'{table}.{name if re.fullmatch("[a-z_]+", name) else chr(34) + name + chr(34)} = "(hidden)"' in lines
    )


SHOWN = {
    "tables.storage_options": {
        "AWS_REGION": "eu-central-1",
        "aws_endpoint_url": "http://minio:9000",
        "ALLOW_HTTP": "true",
        "azure_storage_account_name": "lake",
        "timeout": "30s",
        "conditional_put": "etag",
    },
    "source.client": {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.truststore.location": "/keys/trust.p12",
        "sasl.oauthbearer.client.credentials.client.id": "lake",
        "request.timeout.ms": "1000",
    },
    "spark.conf": {
        "spark.executor.memory": "2g",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions.x": "4",
        "spark.hadoop.fs.s3a.secret.key": "${env.SECRET}",
        "spark.executorEnv.PASSWORD": "${env:PASSWORD}",
    },
}


@pytest.mark.parametrize("table", SHOWN)
def test_a_value_that_is_known_to_be_harmless_is_shown(table: str) -> None:
    lines = describe(read_settings(options={table: SHOWN[table]}))
    assert {line.partition(" = ")[2] for line in lines if line.startswith(f"{table}.")} == {
        f'"{value}"' for value in SHOWN[table].values()
    }


def test_the_query_of_an_address_is_cut() -> None:
    endpoint = f"https://idp.example/token?api-version=1&x={CANARY}#{CANARY}"
    lines = describe(
        read_settings(options={"source.client": {"sasl.oauthbearer.token.endpoint.url": endpoint}})
    )
    shown = "https://idp.example/token?(hidden)"
    assert f'source.client."sasl.oauthbearer.token.endpoint.url" = "{shown}"' in lines


def test_of_the_names_that_kafka_knows_these_are_secret() -> None:
    lines = describe(read_settings(options={"source.client": dict.fromkeys(KNOWN, "x")}))
    hidden = {
        line.split('"')[1] for line in lines if line.startswith("source.client.") and "(hidden)" in line
    }
    assert hidden == PASSWORDS
    assert {name for name in KNOWN if looks_secret(name, "x")} <= PASSWORDS


# --- places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["tables.root", "job.checkpoint"])
@pytest.mark.parametrize(
    "url",
    [
        f"https://acct.blob.core.windows.net/c/x?sv=1&sig={CANARY}",
        f"abfss://c:{CANARY}@acct.dfs.core.windows.net/x",
        f"s3a://id:{CANARY}@bucket/x",
        f"https://{CANARY}@host/x",
        f"s3://{CANARY}@bucket/x",
        f"s3://bucket/x#{CANARY}",
    ],
)
def test_a_place_with_a_secret_in_it_is_refused_and_not_shown(setting: str, url: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read_settings(options={setting: url})
    message = str(raised.value)
    assert (
        f"setting {setting!r} expects a folder or a URL without user, password, query or fragment" in message
    )
    assert CANARY not in message


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("file:/data", "begin with file:///"),
        ("file:data", "begin with file:///"),
        ("/a%20b", "without % before"),
        ("FILE:///data", "without capitals before ://"),
        ("S3://lake", "without capitals before ://"),
    ],
)
@pytest.mark.parametrize("setting", ["tables.root", "job.checkpoint"])
def test_a_place_that_hadoop_and_delta_rs_would_read_in_two_ways_is_refused(
    setting: str, place: str, expected: str
) -> None:
    with pytest.raises(MisuseError, match=f"setting '{setting}' expects .*{expected}"):
        read_settings(options={setting: place})


@pytest.mark.parametrize(
    "place",
    [
        "a?b#c",
        "/100 %",
        "/srv/la:ke@x",
        "abfss://container@account/lake",
        "s3://lake/a@b:c",
        "hdfs://nn:8020/x",
        "file:///x",
    ],
)
def test_other_places_are_taken_as_they_are(place: str) -> None:
    assert read_settings(options={"tables.root": place}).tables.root == place


# --- Spark -----------------------------------------------------------------------------------------------

REFUSED = {
    "spark.hadoop.fs.azure.account.key.lake.example": CANARY,
    "spark.hadoop.fs.azure.sas.c.acct.blob.core.windows.net": f"?sv=2024&sig={CANARY}",
    "spark.hadoop.fs.azure.account.oauth2.client.secret": CANARY,
    "spark.hadoop.fs.s3a.secret.key": CANARY,
    "spark.hadoop.fs.s3a.session.token": CANARY,
    "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:x;pwd={CANARY}",
    "spark.driver.extraJavaOptions": f"-Dx=1 -Dfoo.passphrase={CANARY}",
    "spark.executor.extraJavaOptions": f"-Dpass={CANARY}",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": CANARY,
    "spark.authenticate.secret": CANARY,
    "spark.ssl.keyStorePassword": "123456",
    "spark.hadoop.fs.s3a.proxy.host": f"http://user:{CANARY}@proxy:1",
    "spark.kubernetes.authenticate.submission.oauthToken": CANARY,
    "spark.some.jaas": f'x required password="{CANARY}";',
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_secret_among_the_settings_of_spark_is_refused(name: str) -> None:
    with pytest.raises(MisuseError) as raised:
        read_settings(options={"spark.conf": {"spark.ui.enabled": "false", name: REFUSED[name]}})
    message = str(raised.value)
    assert f"spark.conf: expected no secrets, found one as {name}" in message
    assert "command line" in message
    assert "${env.NAME}" in message
    assert REFUSED[name] not in message


NO_SECRETS = {
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.Some",
    "spark.hadoop.hadoop.security.credential.provider.path": "localjceks://file/etc/lake.jceks",
    "spark.hadoop.fs.azure.sas.token.provider.type.acct.dfs.core.windows.net": "org.example.Sas",
    "spark.hadoop.fs.azure.account.oauth2.client.endpoint": "https://login.example/token",
    "spark.hadoop.fs.azure.account.oauth2.client.id": "lake",
    "spark.hadoop.fs.s3a.secret.key": "${env.AWS_SECRET_ACCESS_KEY}",
    "spark.authenticate": "true",
    "spark.authenticate.secret": "${env:SECRET}",
    "spark.authenticate.secret.file": "/run/secrets/spark",
    "spark.authenticate.secretBitLength": 256,
    "spark.io.encryption.keySizeBits": 256,
    "spark.ssl.keyStore": "/keys/store.p12",
    "spark.ssl.keyStoreType": "PKCS12",
    "spark.redaction.regex": "(?i)secret|password|token",
    "spark.security.credentials.hbase.enabled": "false",
    "spark.security.credentials.renewalRatio": "0.75",
    "spark.kerberos.renewal.credentials": "ccache",
    "spark.kubernetes.driver.secrets.mine": "/etc/secrets",
    "spark.kubernetes.executor.secretKeyRef.TOKEN": "name:key",
    "spark.kafka.clusters.a.sasl.token.mechanism": "SCRAM-SHA-512",
    "spark.driver.extraJavaOptions": "-Xss4m -Dx=1 -Dpassword=${env.PW} -Djavax.net.ssl.keyStore=/store.p12",
    "spark.sql.legacy.keyBy": "x",
}


@pytest.mark.parametrize("name", NO_SECRETS)
def test_what_only_sounds_like_a_secret_is_passed_on(name: str) -> None:
    value = NO_SECRETS[name]
    assert read_settings(options={"spark.conf": {name: value}}).spark.conf == {name: str(value)}
