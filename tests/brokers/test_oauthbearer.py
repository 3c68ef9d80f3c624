"""Client credentials: every form of Kafka's settings means the same, and others are refused by name."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from test_client_settings import assert_accepted

from streaming.brokers.client_settings import java_client_settings, librdkafka_settings
from streaming.brokers.jaas import JaasEntry, read_jaas, written_jaas
from streaming.brokers.oauthbearer import LOGIN_MODULE, read_client_credentials
from streaming.brokers.tls import system_ca_file
from streaming.model.errors import MisuseError
from streaming.settings.reading import read_settings

KAFKAS = "org.apache.kafka.common.security.oauthbearer"
HANDLER = "sasl.login.callback.handler.class"
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
CLIENT = "sasl.oauthbearer.client.credentials.client"
SECRET = "s3cr%t: \"ü'\\"

COMMON = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    ENDPOINT: "https://idp.example/token",
}


def jaas(**options: str) -> str:
    return written_jaas(JaasEntry(LOGIN_MODULE, {k.replace("__", "."): v for k, v in options.items()}))


OLD = {
    **COMMON,
    HANDLER: f"{KAFKAS}.OAuthBearerLoginCallbackHandler",
    "sasl.jaas.config": jaas(clientId="job", clientSecret=SECRET, scope="kafka read"),
}
NEW = {
    **COMMON,
    HANDLER: f"{KAFKAS}.OAuthBearerLoginCallbackHandler",
    f"{CLIENT}.id": "job",
    f"{CLIENT}.secret": SECRET,
    "sasl.oauthbearer.scope": "kafka read",
}
FORMS = {
    "3.9": OLD,
    "3.9, the older class": {**OLD, HANDLER: f"{KAFKAS}.secured.OAuthBearerLoginCallbackHandler"},
    "4.x": NEW,
    "4.x with JAAS, whose options do not count": {
        **NEW,
        "sasl.jaas.config": jaas(clientId="other", clientSecret="other", scope="other"),
    },
    "4.x with its retriever": {**NEW, RETRIEVER: f"{KAFKAS}.ClientCredentialsJwtRetriever"},
    "4.x with the default of its retriever": {
        **NEW,
        RETRIEVER: f"{KAFKAS}.DefaultJwtRetriever",
        "sasl.oauthbearer.jwt.validator.class": f"{KAFKAS}.DefaultJwtValidator",
    },
    "blanks around values, which Java removes": {
        **NEW,
        f"{CLIENT}.id": " job",
        f"{CLIENT}.secret": f"{SECRET}\n",
        ENDPOINT: f"{COMMON[ENDPOINT]} ",
    },
}


def of_java(client: dict[str, str]) -> dict[str, str]:
    return dict(java_client_settings(read_settings(options={"source.client": client}).source))


@pytest.mark.parametrize("client", FORMS.values(), ids=FORMS.keys())
def test_every_form_is_the_same_for_librdkafka(client: dict[str, str]) -> None:
    translated = librdkafka_settings(client)
    assert translated == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        ENDPOINT: "https://idp.example/token",
        "sasl.oauthbearer.client.id": "job",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "kafka+read",
        "https.ca.location": system_ca_file(),
    }
    assert_accepted(translated)


@pytest.mark.parametrize("client", FORMS.values(), ids=FORMS.keys())
def test_every_form_is_that_of_3_9_for_java(client: dict[str, str]) -> None:
    settings = of_java(client)
    entry = read_jaas(settings.pop("sasl.jaas.config"))
    assert entry.module == f"{KAFKAS}.OAuthBearerLoginModule"
    assert {**entry.options, "login": ""} == {
        "clientId": "job",
        "clientSecret": SECRET,
        "scope": "kafka read",
        "login": "",
    }
    assert {name: value.strip() for name, value in settings.items()} == {
        **COMMON,
        HANDLER: f"{KAFKAS}.OAuthBearerLoginCallbackHandler",
        "sasl.login.connect.timeout.ms": "10000",
        "sasl.login.read.timeout.ms": "10000",
        "bootstrap.servers": "localhost:9092",
    }


def test_each_reading_of_java_has_a_login_of_its_own() -> None:
    first, second = (read_jaas(of_java(NEW)["sasl.jaas.config"]).options for _ in range(2))
    assert first["login"] != second["login"]


def test_settings_that_the_user_gives_win_over_our_timeouts_and_reach_java() -> None:
    given = {"sasl.login.read.timeout.ms": "7", "sasl.oauthbearer.sub.claim.name": "client_id"}
    assert given.items() <= of_java({**NEW, **given}).items()
    assert librdkafka_settings({**NEW, **given})["sasl.oauthbearer.sub.claim.name"] == "client_id"


def test_id_and_secret_are_encoded_for_librdkafka_where_java_does_so_itself() -> None:
    client = {**NEW, f"{CLIENT}.id": "a:b", "sasl.oauthbearer.header.urlencode": "TRUE"}
    translated = librdkafka_settings(client)
    assert translated["sasl.oauthbearer.client.id"] == "a%3Ab"
    assert translated["sasl.oauthbearer.client.secret"] == "s3cr%25t%3A+%22%C3%BC%27%5C"
    settings = of_java(client)
    assert settings["sasl.oauthbearer.header.urlencode"] == "TRUE"
    assert read_jaas(settings["sasl.jaas.config"]).options["clientId"] == "a:b"


def test_extensions_reach_both_clients() -> None:
    extensions = {"extension_logicalCluster": "lkc-1", "extension_identityPoolId": "a=1,b\\2"}
    client = {**OLD, "sasl.jaas.config": jaas(clientId="job", clientSecret="x", **extensions)}
    assert extensions.items() <= read_jaas(of_java(client)["sasl.jaas.config"]).options.items()
    found = librdkafka_settings(client)["sasl.oauthbearer.extensions"]
    assert found == "logicalCluster=lkc-1,identityPoolId=a=1\\,b\\\\2"


def test_the_trusted_cas_of_the_endpoint_reach_both_clients() -> None:
    trust = {"ssl__truststore__location": "/keys/idp.pem", "ssl__truststore__type": "PEM"}
    client = {
        **OLD,
        "sasl.jaas.config": jaas(clientId="job", clientSecret="x", ssl__protocol="TLSv1.3", **trust),
        "ssl.truststore.location": "/keys/kafka.pem",
        "ssl.truststore.type": "PEM",
    }
    translated = librdkafka_settings(client)
    assert translated["https.ca.location"] == "/keys/idp.pem"
    assert translated["ssl.ca.location"] == "/keys/kafka.pem"
    options = read_jaas(of_java(client)["sasl.jaas.config"]).options
    assert options["ssl.truststore.location"] == "/keys/idp.pem"
    assert options["ssl.protocol"] == "TLSv1.3"


def test_trusted_cas_as_text_reach_librdkafka() -> None:
    client = {
        **OLD,
        "sasl.jaas.config": jaas(clientId="job", clientSecret="x", ssl__truststore__certificates="PEM"),
    }
    assert librdkafka_settings(client)["https.ca.pem"] == "PEM"


def test_a_trust_store_of_the_endpoint_that_cannot_be_read_is_explained() -> None:
    trust = {"ssl__truststore__location": "/none.p12", "ssl__truststore__password": SECRET}
    client = {**OLD, "sasl.jaas.config": jaas(clientId="job", clientSecret="x", **trust)}
    with pytest.raises(
        MisuseError, match=r"^sasl\.jaas\.config: ssl\.truststore\.location: .* /none\.p12"
    ) as raised:
        librdkafka_settings(client)
    assert SECRET not in str(raised.value)


REFUSED = {
    "no handler": (
        {HANDLER: None},
        rf"^{HANDLER}: expected .*, found nothing \(Kafka's default, which makes",
    ),
    "unsecured tokens": (
        {HANDLER: f"{KAFKAS}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"},
        rf"^{HANDLER}: .*found .*Unsecured.* grant client_credentials",
    ),
    "a handler of others": (
        {HANDLER: "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"},
        rf"^{HANDLER}: expected {KAFKAS}\.OAuthBearerLoginCallbackHandler, found io\.strimzi\.",
    ),
    "the grant jwt-bearer": ({RETRIEVER: f"{KAFKAS}.JwtBearerJwtRetriever"}, rf"^{RETRIEVER}: .*JwtBearer"),
    "tokens in a file": ({RETRIEVER: f"{KAFKAS}.FileJwtRetriever"}, rf"^{RETRIEVER}: .*FileJwtRetriever"),
    "a retriever of others": ({RETRIEVER: "com.example.Retriever"}, rf"^{RETRIEVER}: .*com\.example"),
    "a validator of others": (
        {"sasl.oauthbearer.jwt.validator.class": "com.example.V"},
        r"^sasl\.oauthbearer\.jwt\.validator\.class: .*com\.example\.V",
    ),
    "an assertion": (
        {"sasl.oauthbearer.assertion.private.key.file": "/keys/x"},
        r"^sasl\.oauthbearer\.assertion\.private\.key\.file: .*jwt-bearer",
    ),
    "no endpoint": ({ENDPOINT: None}, rf"^{ENDPOINT}: expected .*, found nothing"),
    "a file as endpoint": ({ENDPOINT: "file:///tmp/token"}, rf"^{ENDPOINT}: .*found a file"),
    "no address": ({ENDPOINT: f"https://{SECRET}"}, rf"^{ENDPOINT}: expected an address .*something else"),
    "an address with a user": (
        {ENDPOINT: "https://job:s3cr@idp/"},
        rf"^{ENDPOINT}: expected .* without a user",
    ),
    "no id": ({f"{CLIENT}.id": None}, rf"^expected {CLIENT}\.id, or clientId=\.\.\. in sasl\.jaas\.config"),
    "no secret": ({f"{CLIENT}.secret": " "}, rf"^expected {CLIENT}\.secret, or clientSecret=\.\.\."),
    "a secret of two lines": (
        {f"{CLIENT}.secret": "s3cr\nx"},
        rf"^{CLIENT}\.secret: expected text of one line",
    ),
    "another login module": (
        {"sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required;"},
        r"^sasl\.jaas\.config: expected .*OAuthBearerLoginModule, found 'org\.apache.*Plain",
    ),
    "an option of unsecured tokens": (
        {"sasl.jaas.config": jaas(unsecuredLoginStringClaim_sub="s3cr")},
        r"^sasl\.jaas\.config: .*found 'unsecuredLoginStringClaim_sub'\. Unsecured",
    ),
    "a misspelt option": (
        {"sasl.jaas.config": jaas(client_id="x")},
        r"expected the options clientId.*'client_id'",
    ),
    "a client certificate": (
        {"sasl.jaas.config": jaas(ssl__keystore__location="/keys/x")},
        r"ssl\.keystore\.location: expected a client secret, found a client certificate",
    ),
    "a reserved extension": (
        {"sasl.jaas.config": jaas(extension_auth="s3cr")},
        r"extension_auth: expected a name",
    ),
    "an extension of two lines": (
        {"sasl.jaas.config": jaas(extension_x="s3cr\nx")},
        r"extension_x: expected",
    ),
    "an extension with a blank": ({"sasl.jaas.config": jaas(extension_x="s3cr ")}, r"extension_x: expected"),
}


@pytest.mark.parametrize(("changed", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_other_ways_to_tokens_are_refused_by_name(changed: dict[str, str | None], message: str) -> None:
    client = {name: value for name, value in {**NEW, **changed}.items() if value is not None}
    for read in (librdkafka_settings, of_java):
        with pytest.raises(MisuseError, match=message) as raised:
            read(client)
        assert "s3cr" not in str(raised.value)


def test_neither_secret_nor_stores_are_shown() -> None:
    credentials = read_client_credentials({**NEW, "sasl.jaas.config": jaas(ssl__truststore__password="p4ss")})
    assert SECRET not in repr(credentials)
    assert "p4ss" not in repr(credentials)


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters=" "), min_size=1, max_size=40)
)
def test_any_secret_reaches_both_clients_unchanged(secret: str) -> None:
    client = {**OLD, "sasl.jaas.config": jaas(clientId="job", clientSecret=secret)}
    assert librdkafka_settings(client)["sasl.oauthbearer.client.secret"] == secret
    assert read_jaas(of_java(client)["sasl.jaas.config"]).options["clientSecret"] == secret
