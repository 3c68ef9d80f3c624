"""The choice of the brokers' release: by KAFKA, and what a release lacks is skipped by name."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from kafka_versions import DEFAULT, VERSIONS, Feature, chosen_version, header

from streaming.jvm.jars import JarSet, listed_jars

ROOT = Path(__file__).parents[2]


def collected(kafka: str, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a pytest of their own, with brokers of this release."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:randomly", *tests],
        cwd=ROOT,
        env={**os.environ, "KAFKA": kafka, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_default_is_the_release_of_the_demo() -> None:
    assert chosen_version({}) == chosen_version({"KAFKA": ""}) == VERSIONS[DEFAULT]
    assert VERSIONS[DEFAULT].jars == "broker"
    assert VERSIONS[DEFAULT].lacks == frozenset()


def test_a_release_is_chosen_by_its_name() -> None:
    assert [chosen_version({"KAFKA": name}).name for name in VERSIONS] == ["3.9.2", "4.3.1", "4.4.0"]


def test_every_release_has_the_jars_of_its_number() -> None:
    for version in VERSIONS.values():
        assert f"kafka_2.13-{version.name}.jar" in listed_jars(version.jars)
    brokers = {jars for jars in get_args(JarSet) if jars.startswith("broker")}
    assert {version.jars for version in VERSIONS.values()} == brokers


@pytest.mark.more
def test_an_unknown_release_is_refused_with_those_there_are() -> None:
    ran = collected("1.0", "tests/project/test_kafka_versions.py")
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"KAFKA=1.0: expected one of {', '.join(VERSIONS)}" in ran.stdout + ran.stderr


def test_the_header_names_the_release_and_what_it_lacks() -> None:
    assert header(VERSIONS[DEFAULT]) == f"kafka: {DEFAULT}"
    assert re.fullmatch(r"kafka: 3\.9\.2 \(has no .*; share groups; .*\)", header(VERSIONS["3.9.2"]))


def test_a_test_of_something_that_the_broker_lacks_is_skipped_by_name() -> None:
    """No broker is started for it."""
    test = "tests/brokers/test_broker_answers.py::test_topic_ids_are_those_of_the_offsets_topic"
    ran = collected("3.9.2", test)
    assert ran.returncode == pytest.ExitCode.OK, ran.stdout
    assert header(VERSIONS["3.9.2"]) in ran.stdout
    assert re.search(rf"SKIPPED .*: Kafka 3\.9\.2 has no {Feature.TOPIC_IDS}$", ran.stdout, re.MULTILINE)


def test_nothing_but_the_table_decides_what_is_skipped_on_a_broker() -> None:
    """Other skips are of tests without a broker or with a JDK, or that another target of make runs."""
    for module in ROOT.glob("tests/*/test_*.py"):
        text = module.read_text()
        if "mark.broker" in text and module.name not in (
            Path(__file__).name,
            "test_cluster.py",
            "test_expiry_on_broker.py",
            "test_grid.py",
            "test_job_on_s3.py",
            "test_keycloak.py",
            "test_kills.py",
            "test_lag_is_true.py",
            "test_least_memory.py",
            "test_msk_sign_in.py",
            "test_object_store.py",
            "test_sign_in.py",
            "test_starved.py",
        ):
            assert not re.search(r"pytest\.skip\(|mark\.skip", text), module.name
