"""Storage options for executors and Spark's UI: references stay, and secrets are left out."""

import copy

from streaming.settings.secrets import Secret, resolved
from streaming.settings.storage import by_reference, export_secrets, unreferred_secrets

ENVIRONMENT = {"KEY": "hidden-1"}
OPTIONS = {
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": resolved("${env:KEY}", name="x", environment=ENVIRONMENT),
    "AWS_SECRET_ACCESS_KEY": "hidden-2",
    "AWS_SESSION_TOKEN": resolved("hidden-3${env:KEY}", name="x", environment=ENVIRONMENT),
    "AWS_ENDPOINT_URL": "https://user:hidden-4@store:9000",
    "of_another_release": "hidden-5",
}


def test_references_stay_and_other_secrets_become_references() -> None:
    shown = by_reference(OPTIONS)
    assert shown["AWS_REGION"] == "eu-west-1"
    assert shown["AWS_ACCESS_KEY_ID"] == "${env:KEY}"
    assert "hidden" not in str(shown)
    assert shown.keys() == OPTIONS.keys()


def test_whoever_has_the_environment_gets_the_options_themselves() -> None:
    environment = dict(ENVIRONMENT)
    export_secrets(OPTIONS, environment)
    found = {
        name: resolved(text, name=name, environment=environment)
        for name, text in by_reference(OPTIONS).items()
    }
    assert found == OPTIONS


def test_secrets_that_are_no_references_are_named() -> None:
    assert unreferred_secrets(OPTIONS) == [
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL",
        "of_another_release",
    ]


def test_a_copy_of_a_secret_knows_its_reference() -> None:
    secret = copy.deepcopy(Secret("hidden", "${env:KEY}"))
    assert (secret, secret.reference, repr(secret)) == ("hidden", "${env:KEY}", "(hidden)")
