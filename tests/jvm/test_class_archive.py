"""The archive of classes: for which Java and which jars it is, and that a damaged one stops no JVM."""

import os
import subprocess
from pathlib import Path

import pytest

from streaming.jvm import jars as jar_cache
from streaming.jvm.class_archive import archive_name, archive_options, archiving_options, put_in_place
from streaming.jvm.java import find_java, said_of_version


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    directory = tmp_path / "cache" / "connector-1"
    directory.mkdir(parents=True)
    (directory / "a.jar").write_bytes(b"a")
    return directory


def a_java(home: Path, version: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True, exist_ok=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"'\n")
    java.chmod(0o755)


def name_for(jars: Path, home: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    a_java(home, version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return archive_name(jars)


def made(directory: Path, content: bytes = b"classes") -> Path:
    file = directory / "made"
    file.write_bytes(content)
    return file


def test_it_is_beside_the_jars_and_used_only_if_it_is_there_as_a_whole(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_for(jars, tmp_path / "java", "17.0.15", monkeypatch)
    assert name is not None
    assert archive_options(jars) == []
    archive = put_in_place(made(tmp_path), jars.parent, name)
    assert archive.parent == jars.parent
    assert archive_options(jars)[-1] == f'"-XX:SharedArchiveFile={archive}"'
    archive.write_bytes(b"class")  # cut short: a JVM would not survive it
    assert archive_options(jars) == []
    archive.write_bytes(b"")
    assert archive_options(jars) == []


def test_another_java_or_other_jars_have_another_archive(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {name_for(jars, tmp_path / "java", "17.0.15", monkeypatch)}
    found.add(name_for(jars, tmp_path / "other", "17.0.16", monkeypatch))
    (jars / "a.jar").write_bytes(b"another")
    found.add(name_for(jars, tmp_path / "other", "17.0.16", monkeypatch))
    assert len(found) == 3


def test_a_release_of_java_that_was_not_tried_has_none(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name_for(jars, tmp_path / "java", "25.0.1", monkeypatch) is None
    assert archive_options(jars) == []


def test_it_is_the_same_whatever_options_java_is_given(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With those of the tests the job went without its archive for long, and nobody saw it."""
    said, names = [], set()
    for options in ("", "-XX:TieredStopAtLevel=1", "-Xint"):
        monkeypatch.setenv("JDK_JAVA_OPTIONS", options)
        said_of_version.cache_clear()
        said.append(said_of_version(find_java()))
        names.add(archive_name(jars))
    said_of_version.cache_clear()
    assert len(set(said)) == 3, said
    assert len(names) == 1, said


def test_only_the_newest_few_are_kept(tmp_path: Path) -> None:
    for number in range(5):
        file = made(tmp_path, b"")
        os.utime(file, (number, number))
        put_in_place(file, tmp_path, f"classes-{number}")
    assert {file.name for file in tmp_path.iterdir()} == {f"classes-{number}-0.jsa" for number in (2, 3, 4)}


def test_an_archive_in_use_is_kept_although_others_are_newer(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_for(jars, tmp_path / "java", "17.0.15", monkeypatch)
    assert name is not None
    archive = put_in_place(made(tmp_path), jars.parent, name)
    os.utime(archive, (1, 1))
    for number in range(3):
        assert archive_options(jars)[-1].endswith(f'{archive}"')
        put_in_place(made(tmp_path), jars.parent, f"classes-{number}")
    assert archive_options(jars)[-1].endswith(f'{archive}"')


class TestRealJava:
    """What the JVM does with archives that it cannot use: it starts without them."""

    @staticmethod
    def ivy(*options: str) -> subprocess.CompletedProcess[str]:
        """Run Ivy, which stands in for Spark: it starts in a second."""
        command = [str(find_java()), *options, "-cp", str(jar_cache._ivy_jar()), "org.apache.ivy.Main"]
        return subprocess.run([*command, "-version"], capture_output=True, text=True, check=False)

    @pytest.mark.parametrize(
        "damage",
        [
            "nonsense",
            "of another class path",
            *(pytest.param(one, marks=pytest.mark.more) for one in ("none", "empty")),
        ],
    )
    def test_a_damaged_archive_stops_no_jvm(self, tmp_path: Path, damage: str) -> None:
        archive = tmp_path / "with a space" / "classes.jsa"
        archive.parent.mkdir()
        said = self.ivy(*(option.strip('"') for option in archiving_options(archive)))
        whole = archive.read_bytes()
        archive.unlink()  # it is there to be read only
        archive.write_bytes({"empty": b"", "nonsense": os.urandom(100_000)}.get(damage, whole))
        other = ["-Xbootclasspath/a:/nowhere"] if damage == "of another class path" else []
        again = self.ivy(f"-XX:SharedArchiveFile={archive}", *other)
        assert again.returncode == said.returncode == 0, again
        assert said.stdout.splitlines()[-1] in again.stdout
