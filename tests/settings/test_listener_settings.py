"""Settings of Kafka listeners and their principals: read from a file, shown without secrets."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from streaming.model.errors import MisuseError
from streaming.settings import read_settings
from streaming.settings.exposed import exposed_secrets
from streaming.settings.shown import describe

FILE = """
[[serve.kafka]]
listen = "127.0.0.1:9193"
security_protocol = "SASL_SSL"
certificate_file = "{folder}/server.pem"
insecure = true
[serve.kafka.broker]
"ssl.client.auth" = "required"
ssl.key.password = "key-secret"
"ssl.truststore.certificates" = "trust-secret"
"connections.max.reauth.ms" = 60000

[[serve.principals]]
name = "billing"
mechanism = "PLAIN"
credential = "${{file:{folder}/secrets.properties:billing}}"
groups = ["billing-*", "audit"]

[[serve.principals]]
name = "in the open"
mechanism = "PLAIN"
credential = "plain-secret"
groups = []
topics = ["orders"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path) -> Path:
    (folder / "secrets.properties").write_text("billing=salt=AAAA,stored_key=file-secret\n")
    (folder / "server.pem").write_text("")
    (folder / "listener.toml").write_text(FILE.format(folder=folder))
    return folder / "listener.toml"


def test_they_are_read_with_secrets_from_elsewhere(file: Path) -> None:
    serve = read_settings(file).serve
    [listener] = serve.kafka
    assert listener.insecure is True
    assert listener.broker == {
        "ssl.client.auth": "required",
        "ssl.key.password": "key-secret",
        "ssl.truststore.certificates": "trust-secret",
        "connections.max.reauth.ms": "60000",
    }
    billing, other = serve.principals
    assert billing.credential == "salt=AAAA,stored_key=file-secret"
    assert (billing.groups, billing.topics) == (("billing-*", "audit"), ("*",))
    assert (other.groups, other.topics) == ((), ("orders",))


def test_they_are_shown_without_secrets(file: Path) -> None:
    lines = describe(read_settings(file))
    [kafka] = [line for line in lines if line.startswith("serve.kafka = ")]
    [principals] = [line for line in lines if line.startswith("serve.principals = ")]
    assert "secret" not in kafka.replace("secrets.properties", "") + principals
    assert "insecure = true" in kafka
    assert 'broker."ssl.client.auth" = "required"' in kafka
    assert 'broker."ssl.key.password" = "(hidden)"' in kafka
    assert 'credential = "(hidden)", groups = ["billing-*", "audit"], topics = ["*"]' in principals


def test_files_with_keys_that_others_may_read_are_told() -> None:
    with TemporaryDirectory(dir="/tmp") as created:  # other folders may be closed to others
        folder = Path(created)
        file = written(folder)
        folder.chmod(0o755)
        names = {"listener.toml", "secrets.properties", "server.pem"}
        for name in names:
            (folder / name).chmod(0o644)
        said = exposed_secrets(read_settings(file), file)
        assert {name for name in names if any(str(folder / name) in line for line in said)} == names
        (folder / "server.pem").chmod(0o600)
        assert "server.pem" not in str(exposed_secrets(read_settings(file), file))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("insecure = true", 'insecure = "yes"', "expects true or false, found 'yes'"),
        ('"SASL_SSL"', '"TLS"', "expects one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL, found 'TLS'"),
        ("ssl.key.password", "ssl.key.pasword", "found 'ssl.key.pasword'. Did you mean ssl.key.password?"),
        (
            '"ssl.client.auth"',
            '"listeners"',
            "expected settings of Kafka's brokers, found 'listeners'. Known:",
        ),
        ('"PLAIN"', '"GSSAPI"', "expects one of PLAIN, SCRAM-SHA-256"),
        ('["billing-*", "audit"]', '"billing-*"', "expects a list of texts"),
        ('["billing-*", "audit"]', "[1]", "expects a list of texts"),
        ('groups = ["billing-*", "audit"]', "", "expects a groups, found none"),
        ('credential = "plain-secret"', "credential = 7", "found something else"),
        (":billing}", ":other}", "to name a key of a properties file, found none in"),
        ('name = "billing"', 'name = ""', "expects text that is not empty"),
    ],
)
def test_mistakes_are_told_with_their_place(file: Path, old: str, new: str, said: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(MisuseError) as raised:
        read_settings(file)
    assert said in str(raised.value)
    assert f"{file}" in str(raised.value)
    assert "plain-secret" not in str(raised.value)
