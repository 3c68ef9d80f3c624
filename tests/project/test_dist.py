"""Wheel and sdist, installed as users do, with each Python of this machine: the demo and the queries run.

Only `make dist` runs this, after it has built both.
"""

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from audit import tool
from http_program import running_program
from installed import ROOT
from served_clusters import fill

from streaming.demo.local_broker import free_ports
from streaming.jvm.jars import default_cache
from streaming.tables.tables import Tables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(os.environ.get("DIST") != "1", reason="installs packages for minutes: make dist"),
]

DIST: Final = ROOT / "dist"
UV: Final = str(Path(sys.executable).with_name("uv"))
MINORS: Final = (11, 12, 13, 14)
CLEAN: Final = {"PATH": "/usr/bin:/bin", "HOME": "", "OFFSETLAKE_JARS": str(default_cache())}
"""The environment of a service: no home, and nothing of this checkout."""


def built(ending: str) -> Path:
    [file] = DIST.glob(f"offsetlake-*{ending}")
    return file


def python(minor: int) -> str:
    """Return the path of a Python of this machine that runs; skip without one."""
    own = sorted(Path("~/.pyenv/versions").expanduser().glob(f"3.{minor}.*/bin/python"))
    for found in (shutil.which(f"python3.{minor}", path="/usr/bin:/usr/local/bin"), *map(str, own)):
        if found is not None and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    pytest.skip(f"Python 3.{minor} is untried: this machine has none")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed; return its standard output."""
    ran = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def run_clean(*command: str | Path, cwd: Path) -> str:
    ran = subprocess.run(list(map(str, command)), cwd=cwd, env=CLEAN, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def size_of(folder: Path) -> str:
    size = sum(file.lstat().st_size for file in folder.rglob("*"))
    return f"{size / 1e6:.0f} MB"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder for installations, in whose path are spaces and more; they are large, so it is emptied."""
    folder = tmp_path / "with spaces, ünïcode"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_indexes_would_take_them(tmp_path: Path) -> None:
    for file in (built(".whl"), built(".tar.gz")):
        print(f"\n{file.name}: {file.stat().st_size / 1e6:.1f} MB")
    run(tool("twine"), "check", "--strict", built(".whl"), built(".tar.gz"), cwd=tmp_path)


def demo_runs(command: Path, folder: Path) -> None:
    """Run the demo in another folder, where packages of the same names must not be loaded."""
    for name in ("streaming", "decoders"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise RuntimeError('loaded')\n")
    assert "the tables agree with the broker" in run_clean(command, "demo", "--for", "20s", cwd=folder)


@pytest.mark.parametrize("minor", MINORS)
def test_the_demo_of_an_installed_wheel_runs(minor: int, elsewhere: Path, tmp_path: Path) -> None:
    own = {"UV_TOOL_DIR": str(elsewhere / "tools"), "UV_TOOL_BIN_DIR": str(elsewhere / "bin")}
    run(UV, "tool", "install", "--python", python(minor), built(".whl"), cwd=elsewhere, **own)
    print(f"\nuv tool install, Python 3.{minor}: {size_of(elsewhere)}")
    demo_runs(elsewhere / "bin" / "offsetlake", tmp_path)


def test_the_demo_of_an_installed_sdist_runs(elsewhere: Path, tmp_path: Path) -> None:
    pipx = shutil.which("pipx")
    if pipx is None:
        pytest.skip("pipx is untried: this machine has none (Debian: apt-get install pipx)")
    own = {"PIPX_HOME": str(elsewhere / "pipx"), "PIPX_BIN_DIR": str(elsewhere / "bin")}
    run(pipx, "install", "--python", sys.executable, built(".tar.gz"), cwd=elsewhere, **own)
    demo_runs(elsewhere / "bin" / "offsetlake", tmp_path)


@pytest.mark.parametrize("minor", MINORS)
def test_readers_alone(minor: int, elsewhere: Path, tmp_path: Path, tables: Tables) -> None:
    fill(tables)
    readers = elsewhere / "readers"
    run(UV, "venv", "--python", python(minor), readers, cwd=ROOT)
    install = (UV, "pip", "install", "--python", readers)
    run(*install, "--group", "serve", cwd=ROOT)
    run(*install, "--no-deps", built(".whl"), cwd=ROOT)
    print(f"\ngroup serve, Python 3.{minor}: {size_of(readers)}")
    command = readers / "bin" / "offsetlake"
    assert '"g"' in run_clean(
        command, "groups", "--output", "json", "--table-root", tables.root, cwd=tmp_path
    )
    assert run_clean(command, "sql", "SELECT 1", "--table-root", tables.root, cwd=tmp_path)
    [port] = free_ports(1)
    http = f"127.0.0.1:{port}"
    serve = [str(command), "serve", "--http", http, "--table-root", tables.root]
    with running_program(serve, f"http://{http}/readyz", log=tmp_path / "log", cwd=tmp_path) as served:
        assert b"offsetlake_" in urllib.request.urlopen(f"http://{http}/metrics").read()
        served.end(signal.SIGTERM)


def test_the_lock_suits_both_installations(tmp_path: Path) -> None:
    """`uv pip install --dry-run` with the lock as constraints resolves."""
    environment = tmp_path / "environment"
    run(UV, "venv", "--python", sys.executable, environment, cwd=ROOT)
    install = (UV, "pip", "install", "--python", environment, "--dry-run", "-c", ROOT / "requirements.lock")
    run(*install, built(".whl"), cwd=ROOT)
    run(*install, "--group", "serve", cwd=ROOT)
