"""The units of systemd: it understands them, and finds them confined."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed import ROOT

PROGRAM = "/opt/offsetlake/bin/offsetlake"
UNITS = sorted((ROOT / "conf" / "deploy").glob("*.service"))
OK_BELOW = 20
"""Exposure in tenths, of 100: systemd itself calls up to 2 of 10 "OK"."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (Debian: systemd)"
)


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_a_unit(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text(encoding="utf-8")
    assert PROGRAM in text
    copy = tmp_path / unit.name
    copy.write_text(text.replace(PROGRAM, sys.executable))  # it must be there
    verified = analyze("verify", str(copy))
    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_confined(unit: Path) -> None:
    judged = analyze("security", "--offline=true", f"--threshold={OK_BELOW}", str(unit))
    assert judged.returncode == 0, judged.stdout
