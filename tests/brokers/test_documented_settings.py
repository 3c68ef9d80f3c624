"""The client settings in docs/security.md: both clients take every block as it stands there."""

import json
import re
from pathlib import Path

import pytest
from certificates import CertificateAuthority
from test_client_settings import assert_accepted

from streaming.brokers.client_settings import client_of, java_client_settings, librdkafka_settings
from streaming.brokers.jaas import read_jaas
from streaming.settings.client_names import refuse_mistaken, unknown_names
from streaming.settings.properties import read_properties
from streaming.settings.reading import read_settings
from streaming.settings.secrets import resolved

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```properties\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
POLICIES = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SECRET = "battery-staple"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the blocks name, in a folder of their own."""
    folder, ca = tmp_path_factory.mktemp("keys"), CertificateAuthority()
    ca.write_trust_stores(folder, SECRET)
    for name in ("ca.crt", "keycloak-ca.pem"):
        ca.write_trusted(folder / name)
    ca.write_pem(folder / "client.pem", "job")
    ca.write_pkcs12(folder / "user.p12", "job", SECRET)
    (folder / "kafka.properties").write_text(f"truststore.password={SECRET}\n")
    return folder


def test_the_blocks_are_found() -> None:
    assert len(BLOCKS) == PAGE.count("sasl.mechanism=") + PAGE.count("security.protocol=SSL\n") > 0


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_both_clients_take_what_is_documented(
    block: str, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRET)  # a client signs a token at once
    file = tmp_path / "client.properties"
    file.write_text(re.sub(r"/etc/kafka|/run/secrets", str(keys), block))
    properties = read_properties(file)
    refuse_mistaken(properties, where="docs/security.md")
    assert unknown_names(properties) == []
    environment = dict.fromkeys(re.findall(r"\$\{env:(\w+)\}", block), SECRET)
    client = {
        name: str(resolved(value, name=name, environment=environment)) for name, value in properties.items()
    }
    source = {"source.client": client, "source.bootstrap_servers": "b-1.x.kafka.eu-west-1.amazonaws.com:9098"}
    with_servers = client_of(read_settings(options=source).source)
    assert_accepted({**librdkafka_settings(with_servers), "bootstrap.servers": "localhost:1"})
    java = java_client_settings(read_settings(options=source).source)
    if "${env:" in block and "sasl.jaas.config" in java:
        assert SECRET in read_jaas(java["sasl.jaas.config"]).options.values()


def test_the_policy_of_aws_names_each_resource_of_its_actions() -> None:
    [policy] = map(json.loads, POLICIES)
    kinds = {"Topic": "topic", "ReadData": "topic", "Group": "group"}
    for statement in policy["Statement"]:
        kind = statement["Resource"].split(":")[-1].split("/")[0]
        for action in [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]:
            assert next((of for name, of in kinds.items() if name in action), "cluster") == kind
