"""The client settings in docs/security.md: both clients take every block as it stands there."""

import re
from pathlib import Path

import pytest
from certificates import CertificateAuthority
from test_client_settings import assert_accepted

from streaming.brokers.client_settings import java_client_settings, librdkafka_settings
from streaming.brokers.jaas import read_jaas
from streaming.settings.client_names import refuse_mistaken, unknown_names
from streaming.settings.properties import read_properties
from streaming.settings.reading import read_settings
from streaming.settings.secrets import resolved

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```properties\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
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
def test_both_clients_take_what_is_documented(block: str, keys: Path, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(re.sub(r"/etc/kafka|/run/secrets", str(keys), block))
    properties = read_properties(file)
    refuse_mistaken(properties, where="docs/security.md")
    assert unknown_names(properties) == []
    environment = dict.fromkeys(re.findall(r"\$\{env:(\w+)\}", block), SECRET)
    client = {
        name: str(resolved(value, name=name, environment=environment)) for name, value in properties.items()
    }
    assert_accepted(librdkafka_settings(client))
    java = java_client_settings(read_settings(options={"source.client": client}).source)
    if "sasl.jaas.config" in java:
        assert SECRET in read_jaas(java["sasl.jaas.config"]).options.values()
