"""The jar cache and the Java that fills it, without a network: a small script stands in for `java`."""

import os
import re
import shlex
import time
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree

import pytest

from streaming.common.conf_dir import conf_dir
from streaming.jvm import jars
from streaming.jvm.jars import (
    JarError,
    JarSet,
    copy_jars,
    default_cache,
    ensure_jars,
    jar_directory,
    listed_digests,
    listed_jars,
)
from streaming.jvm.java import JavaError, find_java, parse_java_version, require_account
from streaming.jvm.ownership import ForeignFileError

VERSION_17 = 'openjdk version "17.0.15" 2025-04-15'
IVYS_NAME_OF_CLASSIFIERS = 'xmlns:maven="http://ant.apache.org/ivy/maven"'
VERSION_11 = 'openjdk version "11.0.22" 2024-01-16'

# What the fake Ivy does: $target is the directory that it was asked to fill; a jar holds its own name.
FILL = 'mkdir -p "$target"; for jar in {jars}; do printf %s "$jar" > "$target/$jar"; done'


def fake_java(home: Path, *, version: str = VERSION_17, run: str = "exit 99") -> Path:
    """Write a `java` that prints `version` on request, and otherwise runs the shell code `run`."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo {shlex.quote(version)} >&2; exit 0; fi\n'
        f": > {shlex.quote(str(home / 'was-run'))}\n"
        'for argument; do target="${argument%/\\[artifact\\]*}"; done\n'
        f"{run}\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that is not there yet, of jars that hold what the fake Ivy gives."""
    names = frozenset().union(*map(listed_jars, get_args(JarSet)))
    digests = tmp_path / "jars.sha256"
    digests.write_text("".join(f"{sha256(name.encode()).hexdigest()}  {name}\n" for name in names))
    monkeypatch.setattr(jars, "digest_file", lambda: digests)
    return tmp_path / "cache"


@pytest.fixture
def java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that JAVA_HOME names; `fake_java` makes it a Java."""
    home = tmp_path / "java"
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def fill_with(names: frozenset[str]) -> str:
    return FILL.format(jars=" ".join(sorted(names)))


class TestJava:
    def test_java_home_comes_before_path(self, tmp_path: Path) -> None:
        at_home = fake_java(tmp_path / "home")
        on_path = fake_java(tmp_path / "other")
        environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
        assert find_java(environment) == at_home

    def test_without_java_home_the_first_on_path_is_taken(self, tmp_path: Path) -> None:
        java = fake_java(tmp_path / "other")
        assert find_java({"PATH": str(java.parent)}) == java

    def test_no_java_at_all_says_where_it_looked_and_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(JavaError, match=r"found no java on PATH, and JAVA_HOME is not set.*Install"):
            find_java({"PATH": str(tmp_path)})

    def test_a_java_home_without_java_is_not_passed_over(self, tmp_path: Path) -> None:
        on_path = fake_java(tmp_path / "other")
        environment = {"JAVA_HOME": "/nowhere", "PATH": str(on_path.parent)}
        with pytest.raises(JavaError, match=r"found no java at /nowhere/bin/java.*JAVA_HOME=/nowhere"):
            find_java(environment)

    def test_an_old_java_says_its_version_and_place(self, tmp_path: Path) -> None:
        java = fake_java(tmp_path / "old", version=VERSION_11)
        expected = f"expected Java 17 or newer, found Java 11 at {java}."
        with pytest.raises(JavaError, match=re.escape(expected)):
            find_java({"PATH": str(java.parent)})

    def test_a_java_that_says_no_version_is_quoted(self, tmp_path: Path) -> None:
        java = fake_java(tmp_path / "stub", version="Unable to locate a Java Runtime.")
        with pytest.raises(JavaError, match=r"Unable to locate a Java Runtime\."):
            find_java({"PATH": str(java.parent)})

    @pytest.mark.parametrize(
        ("text", "version"),
        [
            ('java version "1.8.0_392"', 8),
            (VERSION_11, 11),
            ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', 21),
            ('openjdk version "25-ea"', 25),
            ("", None),
        ],
    )
    def test_versions_are_read_in_old_and_new_spelling(self, text: str, version: int | None) -> None:
        assert parse_java_version(text) == version


class TestList:
    def test_nothing_is_resolved_transitively(self) -> None:
        for dependency in ElementTree.parse(conf_dir() / "ivy.xml").iterfind("./dependencies/dependency"):
            assert dependency.attrib["transitive"] == "false", dependency.attrib["name"]

    @pytest.mark.parametrize("conf", get_args(JarSet))
    def test_no_module_is_listed_twice_in_one_configuration(self, conf: JarSet) -> None:
        modules = [re.sub(r"-\d[^-]*(-\d+)?\.jar$", "", name) for name in listed_jars(conf)]
        assert sorted(modules) == sorted(set(modules))

    def test_the_connector_is_of_pyspark_s_own_release(self) -> None:
        assert f"spark-sql-kafka-0-10_2.13-{metadata.version('pyspark')}.jar" in listed_jars("connector")

    def test_each_jar_is_pinned_by_its_content_and_no_other(self) -> None:
        listed = frozenset().union(*map(listed_jars, get_args(JarSet)))
        digests = listed_digests()
        assert digests.keys() == listed
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests.values())

    def test_no_registry_is_named(self) -> None:
        for name in ("ivy.xml", "ivysettings.xml"):
            text = (conf_dir() / name).read_text().replace(IVYS_NAME_OF_CLASSIFIERS, "")
            assert not re.search(r"https?://", text)


class TestCacheDirectory:
    def test_its_own_variable_wins(self, tmp_path: Path) -> None:
        environment = {"OFFSETLAKE_JARS": str(tmp_path), "XDG_CACHE_HOME": "/elsewhere"}
        assert default_cache(environment) == tmp_path

    def test_it_is_in_the_user_s_cache_directory(self, tmp_path: Path) -> None:
        assert default_cache({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "offsetlake" / "jars"
        assert default_cache({}) == Path.home().resolve() / ".cache" / "offsetlake" / "jars"

    def test_a_user_without_home_is_told_to_name_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # nobody has so high an id
        with pytest.raises(JarError, match=r"^jar cache: expected a folder in OFFSETLAKE_JARS, or a home"):
            default_cache({})

    def test_a_user_without_account_is_told_so_before_spark_starts(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        require_account()
        monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
        with pytest.raises(JavaError, match=r"expected that user 4000000000 has an account"):
            require_account()

    def test_another_list_is_another_directory(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = jar_directory("connector", cache)
        monkeypatch.setattr(jars, "listed_jars", lambda conf: frozenset({f"{conf}-1.jar"}))
        assert jar_directory("connector", cache) != before


class TestRetrieval:
    def test_missing_jars_are_retrieved_and_the_second_call_starts_no_java(
        self, cache: Path, java_home: Path
    ) -> None:
        fake_java(java_home, run=fill_with(listed_jars("connector")))
        directory = ensure_jars("connector", cache=cache)
        assert {jar.name for jar in directory.iterdir()} == listed_jars("connector")
        (java_home / "was-run").unlink()
        assert ensure_jars("connector", cache=cache) == directory
        assert not (java_home / "was-run").exists()

    def test_a_complete_cache_needs_no_java(self, cache: Path, java_home: Path) -> None:
        directory = jar_directory("connector", cache)
        directory.mkdir(parents=True)
        for name in listed_jars("connector"):
            (directory / name).write_text(name)
        assert not java_home.exists()
        assert ensure_jars("connector", cache=cache) == directory

    @pytest.mark.parametrize(
        "damage", ["a jar is missing", "a jar too many", "a jar that holds something else"]
    )
    def test_a_damaged_set_is_replaced_and_reported(
        self, cache: Path, java_home: Path, said: list[str], damage: str
    ) -> None:
        fake_java(java_home, run=fill_with(listed_jars("connector")))
        directory = ensure_jars("connector", cache=cache)
        jar = directory / min(listed_jars("connector"))
        match damage:
            case "a jar is missing":
                jar.unlink()
            case "a jar too many":
                (directory / "stray-1.jar").touch()
            case _:
                jar.write_text("another")
        assert ensure_jars("connector", cache=cache) == directory
        assert {jar.name: jar.read_text() for jar in directory.iterdir()} == {
            name: name for name in listed_jars("connector")
        }
        (line,) = said
        assert line.startswith(f"jars {directory}: expected ")
        assert (sha256(b"another").hexdigest() in line) == (damage == "a jar that holds something else")

    def test_a_registry_that_gives_another_file_gives_none(self, cache: Path, java_home: Path) -> None:
        name = min(listed_jars("connector"))
        kept = f'mkdir -p "{cache}/ivy/org"; cp "$target"/*.jar "{cache}/ivy/org"'  # as Ivy does
        other = f'{fill_with(listed_jars("connector"))}; printf other > "$target/{name}"; {kept}'
        fake_java(java_home, run=other)
        listed, found = (sha256(text).hexdigest() for text in (name.encode(), b"other"))
        with pytest.raises(
            JarError, match=f"expected SHA-256 {listed} of {name}, found {found}. None was installed."
        ):
            ensure_jars("connector", cache=cache)
        assert {entry.name for entry in cache.iterdir()} == {"ivy", "ivy-connector.log"}
        kept_by_ivy = {jar.name for jar in (cache / "ivy" / "org").iterdir()}
        assert kept_by_ivy == listed_jars("connector") - {name}  # so that the next attempt asks again

    def test_whatever_the_umask_nobody_else_may_write_the_jars(self, cache: Path, java_home: Path) -> None:
        fake_java(java_home, run=fill_with(listed_jars("connector")))
        before = os.umask(0)
        try:
            directory = ensure_jars("connector", cache=cache)
        finally:
            os.umask(before)
        assert {path.stat().st_mode & 0o022 for path in (cache, directory, *directory.iterdir())} == {0}

    def test_a_cache_that_cannot_be_used_is_one_sentence(self, tmp_path: Path, cache: Path) -> None:
        cache.write_text("a file")
        with pytest.raises(
            JarError, match=r"jar cache .*cache: expected to read and write there, found .*directory"
        ):
            ensure_jars("connector", cache=cache)

    @pytest.mark.parametrize("end", ["exit 1", "kill -9 $$", "exit 0"])
    def test_an_incomplete_retrieval_leaves_no_jar_set(self, cache: Path, java_home: Path, end: str) -> None:
        half = frozenset(sorted(listed_jars("broker"))[:20])
        fake_java(java_home, run=f"{fill_with(half)}; {end}")
        with pytest.raises(JarError, match="retrieving the broker jars"):
            ensure_jars("broker", cache=cache)
        assert [entry.name for entry in cache.iterdir()] == ["ivy-broker.log"]

    def test_what_killed_processes_left_is_deleted_a_day_later(self, cache: Path, java_home: Path) -> None:
        fake_java(java_home, run=fill_with(listed_jars("connector")))
        directory = ensure_jars("connector", cache=cache)
        before = time.time() - 86_400
        folders = {".retrieving-old": -60, ".copying-old": -60, ".retrieving-new": 60, "ivy": -60}
        for name, later in folders.items():
            (cache / name / "connector").mkdir(parents=True)
            os.utime(cache / name, (before + later, before + later))
        assert ensure_jars("connector", cache=cache) == directory
        left = {directory.name, ".retrieving-new", "ivy", "ivy-connector.log"}
        assert {entry.name for entry in cache.iterdir()} == left

    def test_a_process_that_was_first_keeps_its_directory(self, cache: Path, java_home: Path) -> None:
        directory = jar_directory("connector", cache)
        first = f'cp -r "$target" {shlex.quote(str(directory))}; : > {shlex.quote(str(directory / "first"))}'
        fake_java(java_home, run=f"{fill_with(listed_jars('connector'))}; {first}")
        assert ensure_jars("connector", cache=cache) == directory
        assert (directory / "first").exists()

    def test_a_missing_jar_is_named_in_ivy_s_words(self, cache: Path, java_home: Path) -> None:
        fake_java(java_home, run='echo "module not found: org.example#gone;1.0"; exit 1')
        with pytest.raises(JarError, match=r"did not give every jar.*module not found: org.example#gone;1.0"):
            ensure_jars("connector", cache=cache)

    @pytest.mark.timeout(20)
    def test_a_registry_that_never_answers_is_given_up(
        self, cache: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jars, "_SILENCE_LIMIT", 0.3)
        fake_java(java_home, run="exec sleep 60")
        with pytest.raises(JarError, match=r"did not answer for"):
            ensure_jars("connector", cache=cache)

    def test_ivy_downloads_into_our_cache(self, cache: Path, java_home: Path) -> None:
        fake_java(java_home, run='echo "$@"; exit 1')
        with pytest.raises(JarError):
            ensure_jars("connector", cache=cache)
        assert f"-cache {cache / 'ivy'} " in (cache / "ivy-connector.log").read_text()

    @pytest.mark.broker
    def test_an_unreachable_registry_is_called_that(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # nothing listens there
        with pytest.raises(
            JarError, match=r"no registry could be reached.*Server access error at url .*refused"
        ):
            ensure_jars("connector", cache=cache)


class TestCopies:
    @pytest.fixture(autouse=True)
    def filled(self, cache: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OFFSETLAKE_JARS", str(cache))
        fake_java(java_home, run=fill_with(listed_jars("connector")))

    def test_a_copy_needs_no_java_afterwards(
        self, tmp_path: Path, java_home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        copied = copy_jars("connector", tmp_path / "copy")
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        assert ensure_jars("connector", cache=tmp_path / "copy") == copied
        assert {jar.name for jar in copied.iterdir()} == listed_jars("connector")
        assert [one.name for one in (tmp_path / "copy").iterdir()] == [copied.name]

    def test_a_set_in_the_cache_itself_is_only_retrieved(self, cache: Path) -> None:
        assert copy_jars("connector", cache) == jar_directory("connector", cache)

    def test_a_changed_copy_is_replaced(self, tmp_path: Path) -> None:
        jar = next(copy_jars("connector", tmp_path / "copy").iterdir())
        jar.write_text("changed")
        copy_jars("connector", tmp_path / "copy")
        assert jar.read_text() == jar.name

    def test_a_folder_that_others_may_write_is_refused(self, tmp_path: Path) -> None:
        copy_jars("connector", tmp_path / "copy")
        (tmp_path / "copy").chmod(0o777)
        with pytest.raises(ForeignFileError):
            copy_jars("connector", tmp_path / "copy")

    def test_a_file_in_the_place_of_the_folder_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "copy").touch()
        with pytest.raises(JarError, match=r"jar cache .*copy: expected to read and write there"):
            copy_jars("connector", tmp_path / "copy")
