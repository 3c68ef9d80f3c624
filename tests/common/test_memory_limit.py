"""The limit of a container's memory, in the files of both versions of control groups."""

from pathlib import Path

from streaming.common.memory_limit import memory_limit

GIB = 2**30
V1 = "5:cpu,cpuacct:/other\n4:memory:{}\n0::/\n"
V2 = "0::{}\n"


def limit_with(directory: Path, groups: str, files: dict[str, str]) -> int | None:
    for name, text in files.items():
        file = directory / "mounted" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    own = directory / "groups"
    own.write_text(groups)
    return memory_limit(own, directory / "mounted")


def test_version_1(tmp_path: Path) -> None:
    files = {"memory/a/b/memory.limit_in_bytes": str(2 * GIB), "cpu/other/memory.limit_in_bytes": "1"}
    assert limit_with(tmp_path, V1.format("/a/b"), files) == 2 * GIB


def test_version_1_without_a_limit(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": "9223372036854771712"}
    assert limit_with(tmp_path, V1.format("/"), files) is None


def test_version_2(tmp_path: Path) -> None:
    files = {"a/b/memory.max": str(2 * GIB)}
    assert limit_with(tmp_path, V2.format("/a/b"), files) == 2 * GIB


def test_version_2_without_a_limit(tmp_path: Path) -> None:
    assert limit_with(tmp_path, V2.format("/a"), {"a/memory.max": "max"}) is None


def test_a_lower_limit_of_a_group_above_counts(tmp_path: Path) -> None:
    files = {"a/memory.max": str(GIB), "a/b/memory.max": str(2 * GIB), "a/b/c/memory.max": "max"}
    assert limit_with(tmp_path, V2.format("/a/b/c"), files) == GIB


def test_a_container_sees_only_its_own_group_as_the_root(tmp_path: Path) -> None:
    files = {"memory/memory.limit_in_bytes": str(2 * GIB)}
    assert limit_with(tmp_path, V1.format("/docker/0123abcd"), files) == 2 * GIB


def test_a_group_outside_of_the_visible_ones(tmp_path: Path) -> None:
    files = {"memory.max": str(2 * GIB)}
    assert limit_with(tmp_path, V2.format("/../../a"), files) == 2 * GIB


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "absent", tmp_path) is None
    assert limit_with(tmp_path, "", {}) is None
