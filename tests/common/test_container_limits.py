"""The limits of a container, in the files of both versions of control groups."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

from streaming.common import container_limits
from streaming.common.container_limits import core_limit, limit_cores_of_arrow, memory_limit, usable_cores

GIB = 2**30
V1 = "5:cpu,cpuacct:/other\n4:memory:{}\n0::/\n"
V2 = "0::{}\n"


def limit_with(directory: Path, groups: str, files: dict[str, str]) -> int | None:
    return memory_limit(*laid_out(directory, groups, files))


def laid_out(directory: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        file = directory / "mounted" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    own = directory / "groups"
    own.write_text(groups)
    return own, directory / "mounted"


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


def test_lines_of_another_form_are_passed_over(tmp_path: Path) -> None:
    groups = f"\nnone:\n{V2.format('/a')}"
    assert limit_with(tmp_path, groups, {"a/memory.max": str(GIB)}) == GIB


def test_a_group_outside_of_the_visible_ones(tmp_path: Path) -> None:
    files = {"memory.max": str(2 * GIB)}
    assert limit_with(tmp_path, V2.format("/../../a"), files) == 2 * GIB


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert memory_limit(tmp_path / "absent", tmp_path) is None
    assert limit_with(tmp_path, "", {}) is None


# --- cores -----------------------------------------------------------------------------------------------

OWN_CPU_OF_V1 = "5:cpu,cpuacct:/a/b\n4:memory:/\n0::/\n"
CORES = {
    "version 1": (
        OWN_CPU_OF_V1,
        {"cpu/a/b/cpu.cfs_quota_us": "150000", "cpu/a/b/cpu.cfs_period_us": "100000"},
        2,
    ),
    "version 1, no limit": (
        OWN_CPU_OF_V1,
        {"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"},
        None,
    ),
    "version 2": (V2.format("/a/b"), {"a/b/cpu.max": "300000 100000"}, 3),
    "version 2, no limit": (V2.format("/a/b"), {"a/b/cpu.max": "max 100000"}, None),
    "less than a core": (V2.format("/a"), {"a/cpu.max": "10000 100000"}, 1),
    "a group above": (V2.format("/a/b"), {"a/cpu.max": "100000 50000", "a/b/cpu.max": "9 1"}, 2),
    "only its own group": (V2.format("/docker/0123abcd"), {"cpu.max": "200000 100000"}, 2),
    "no control groups": ("", {}, None),
}


@pytest.mark.parametrize(("groups", "files", "limit"), CORES.values(), ids=CORES.keys())
def test_the_limit_in_cores(tmp_path: Path, groups: str, files: dict[str, str], limit: int | None) -> None:
    assert core_limit(*laid_out(tmp_path, groups, files)) == limit


def test_this_process_and_arrow_use_no_more_cores_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, of_arrow = os.sched_getaffinity(0), pa.cpu_count()
    usable_cores.cache_clear()
    try:
        assert usable_cores() == min(len(allowed), core_limit() or len(allowed))
        usable_cores.cache_clear()
        os.sched_setaffinity(0, [min(allowed)])
        assert usable_cores() == 1
        usable_cores.cache_clear()
        os.sched_setaffinity(0, allowed)
        monkeypatch.setattr(container_limits, "core_limit", lambda: 1)
        pa.set_cpu_count(4)
        limit_cores_of_arrow()
        assert (usable_cores(), pa.cpu_count()) == (1, 1)
    finally:
        os.sched_setaffinity(0, allowed)
        pa.set_cpu_count(of_arrow)
        usable_cores.cache_clear()
