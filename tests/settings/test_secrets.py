"""References to secrets: resolved from the environment and files, and never shown."""

from pathlib import Path

import pytest

from streaming.cli.options import with_command_config
from streaming.model.errors import MisuseError
from streaming.settings.reading import read_settings
from streaming.settings.secrets import Secret, resolved
from streaming.settings.shown import describe

ENVIRONMENT = {"PASSWORD": "s3cret", "EMPTY": "", "ODD": "${env:PASSWORD}"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("${env:PASSWORD}", "s3cret"),
        ('module required password="${env:PASSWORD}";', 'module required password="s3cret";'),
        ("${env:PASSWORD}-${env:PASSWORD}", "s3cret-s3cret"),
        ("${env:EMPTY}", ""),
        ("${env:ODD}", "${env:PASSWORD}"),  # what it gives is taken as it is
        ("$env:PASSWORD {env:PASSWORD} ${PASSWORD}", "$env:PASSWORD {env:PASSWORD} ${PASSWORD}"),
    ],
)
def test_environment_variables_are_put_in(value: str, expected: str) -> None:
    found = resolved(value, name="x", environment=ENVIRONMENT)
    assert found == expected
    assert isinstance(found, Secret) == ("${env:" in value)


def test_a_key_of_a_properties_file_is_put_in(tmp_path: Path) -> None:
    file = tmp_path / "secrets: all"
    file.write_text("a=1\npassword=s3\\u0063ret\n")
    assert resolved(f"<${{file:{file}:password}}>", name="x") == "<s3cret>"


MISSING = {
    "${env:NONE}": r"^x: expected \$\{env:NONE\} to name an environment variable, found that it is not set",
    "${file:/none:key}": r"^x: \$\{file:/none:key\}: client settings /none: cannot be read",
    "${file:/dev/null:key}": r"to name a key of a properties file, found none in /dev/null",
    "${file:/dev/null}": r"expected \$\{file:PATH:KEY\}, found \$\{file:/dev/null\}",
    "${vault:a:b}": r"expected \$\{env:NAME\} or \$\{file:PATH:KEY\}, found another kind",
}


@pytest.mark.parametrize(("value", "message"), MISSING.items())
def test_a_reference_to_what_is_not_there_is_named(value: str, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        resolved(value, name="x", environment=ENVIRONMENT)


SETTINGS = """
[source.client]
"some.innocent.name" = "${env:PASSWORD}"
[tables.storage_options]
AWS_ACCESS = "${env:PASSWORD}"
[alerts.webhook]
url = "https://example/${env:PASSWORD}"
headers = { Authorization = "Bearer ${env:PASSWORD}" }
[spark.conf]
"spark.test" = "${env:NONE}"
"""


def test_settings_may_refer_to_secrets_and_do_not_show_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "s3cret")
    (tmp_path / "job.toml").write_text(SETTINGS)
    settings = read_settings(tmp_path / "job.toml")
    assert settings.source.client == {"some.innocent.name": "s3cret"}
    assert settings.tables.storage_options["AWS_ACCESS"] == "s3cret"
    assert settings.alerts.webhook.url == "https://example/s3cret"
    assert settings.alerts.webhook.headers == {"Authorization": "Bearer s3cret"}
    assert settings.spark.conf == {"spark.test": "${env:NONE}"}, "which is Spark's own"
    assert 'source.client."some.innocent.name" = "(hidden)"' in describe(settings)
    assert "s3cret" not in repr(settings) + "".join(describe(settings))


@pytest.mark.parametrize(
    "text",
    [
        '[alerts.webhook]\nurl = "${env:PASSWORD}"',
        '[source.client]\n"sasl.jaas.config" = ["s3cret"]',
        '[alerts.webhook]\nheaders = "Bearer s3cret"',
    ],
)
def test_a_refused_setting_does_not_show_what_may_be_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("PASSWORD", "s3cret")
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(MisuseError, match="found something else") as raised:
        read_settings(tmp_path / "job.toml")
    assert "s3cret" not in str(raised.value)


def test_a_command_config_file_may_refer_to_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "s3cret")
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=env\nconfig.providers.env.class=org.apache.kafka.Some\n"
        "ssl.truststore.password=${env:PASSWORD}\n"
    )
    settings = with_command_config(read_settings(), file)
    assert settings.source.client == {"ssl.truststore.password": "s3cret"}
    file.write_text("ssl.truststore.password=${env:NONE}\n")
    with pytest.raises(
        MisuseError, match=r"client\.properties: ssl\.truststore\.password: expected \$\{env:NONE\}"
    ):
        with_command_config(read_settings(), file)
