"""A cache that others own, or may write, is refused: what is in it runs as the job."""

import os
import re
from pathlib import Path

import pytest

from streaming.jvm.class_archive import archive_options, put_in_place
from streaming.jvm.jars import JarError, ensure_jars, jar_directory
from streaming.jvm.ownership import ForeignFileError, refuse_foreign, refuse_replaceable

OTHER = 54_321  # a user that no machine has

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with a jar set of one jar."""
    directory = jar_directory("connector", tmp_path / "cache")
    directory.mkdir(parents=True)
    (directory / "a.jar").write_text("a")
    return directory.parent


def places(cache: Path) -> dict[str, Path]:
    directory = jar_directory("connector", cache)
    return {"cache": cache, "set": directory, "jar": directory / "a.jar"}


@pytest.mark.parametrize("place", ["cache", "set", "jar"])
@pytest.mark.parametrize("bit", [0o020, 0o002])
def test_what_others_may_write_is_refused(cache: Path, place: str, bit: int) -> None:
    path = places(cache)[place]
    path.chmod(path.stat().st_mode | bit)
    with pytest.raises(ForeignFileError) as raised:
        ensure_jars("connector", cache=cache)
    message = str(raised.value)
    assert f"only its owner may write {path}, found mode {path.stat().st_mode & 0o7777:04o}" in message
    assert "OFFSETLAKE_JARS" in message
    assert "chmod go-w" in message


@as_root
@pytest.mark.parametrize("place", ["cache", "set", "jar"])
def test_what_another_user_owns_is_refused(cache: Path, place: str) -> None:
    path = places(cache)[place]
    os.chown(path, OTHER, -1)
    with pytest.raises(
        ForeignFileError, match=re.escape(f"that {path} belongs to root or root, found")
    ) as raised:
        ensure_jars("connector", cache=cache)
    assert f"belongs to user {OTHER}" in str(raised.value)


def test_what_root_owns_is_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image that was made by root, and is run by somebody else."""
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    refuse_foreign([Path("/usr")], "cache")


@pytest.mark.parametrize("bit", [0o020, 0o002])
def test_an_archive_of_classes_that_others_may_write_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    monkeypatch.setattr("streaming.jvm.class_archive.archive_name", lambda _: "classes-1")
    made = cache / "made"
    made.write_bytes(b"classes")
    archive = put_in_place(made, cache, "classes-1")
    jars = places(cache)["set"]
    assert str(archive) in archive_options(jars)[-1]
    archive.chmod(0o600 | bit)
    with pytest.raises(
        ForeignFileError,
        match=re.escape(f"archive of classes: expected that only its owner may write {archive}"),
    ):
        archive_options(jars)


def test_a_folder_above_that_everybody_may_write_is_refused(cache: Path) -> None:
    above = cache.parent
    above.chmod(0o777)
    with pytest.raises(ForeignFileError, match=re.escape(f"may write {above}, found mode 0777")):
        ensure_jars("connector", cache=cache)
    above.chmod(0o1777)  # as /tmp: only owners rename
    refuse_replaceable(cache, "jar cache")


def test_a_new_cache_in_a_folder_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ForeignFileError, match=re.escape(f"may write {tmp_path}, found mode 0777")):
        ensure_jars("connector", cache=tmp_path / "new" / "cache")


@as_root
def test_a_folder_above_that_another_user_owns_is_refused(cache: Path) -> None:
    """Who could put another cache in the place of this one, between its check and its use."""
    above = cache.parent
    os.chown(above, OTHER, -1)
    with pytest.raises(ForeignFileError, match=re.escape(f"that {above} belongs to root or root, found")):
        ensure_jars("connector", cache=cache)


@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_a_new_cache_is_not_refused_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    retrieved = jar_directory("connector", tmp_path / "new" / "cache")
    monkeypatch.setattr("streaming.jvm.jars.run_ivy", lambda *_: retrieved.parent.joinpath("asked").touch())
    monkeypatch.setattr("streaming.jvm.jars._telling_line", lambda _: "nothing")
    before = os.umask(umask)
    try:
        with pytest.raises(JarError, match="jars, found others"):
            ensure_jars("connector", cache=retrieved.parent)
    finally:
        os.umask(before)
    assert (retrieved.parent / "asked").exists()
    for folder in (retrieved.parent, retrieved.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o755


def test_what_is_not_there_is_passed_over(tmp_path: Path) -> None:
    refuse_foreign([tmp_path / "gone"], "cache")
