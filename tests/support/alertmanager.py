"""A real Prometheus Alertmanager for tests: from PATH, or unpacked from its Debian package without root."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from http_program import running_program

from streaming.demo.local_broker import free_ports

NAMES = ("prometheus-alertmanager", "alertmanager")
PACKAGE = "prometheus-alertmanager"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "offsetlake-tests" / PACKAGE

CONFIG = """
global:
  resolve_timeout: 1s
route:
  receiver: hook
  group_by: ['...']
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
  - name: hook
    webhook_configs:
      - url: '{url}'
        send_resolved: true
"""


TEMPLATES = b"/usr/share/prometheus/alertmanager"
UNPACKED_TEMPLATES = b"usr/share/prometheus//alertmanager"
"""Where Debian's program looks for its templates, and the same below the working directory, equally long."""


def find_alertmanager() -> Path | str:
    """Return the program, or why there is none; it is never installed, and in CI not even downloaded."""
    for name in NAMES:
        if found := shutil.which(name):
            return Path(found)
    unpacked = CACHE / "usr" / "bin" / PACKAGE
    if unpacked.exists():
        return unpacked
    if os.environ.get("CI"):
        return f"{PACKAGE} is not on PATH, and CI downloads nothing for it"
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return f"{PACKAGE} is not on PATH, and this is no Debian to download its package on"
    return _unpacked(unpacked)


def _unpacked(program: Path) -> Path | str:
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["apt-get", "download", PACKAGE],
            cwd=CACHE,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        (package,) = CACHE.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), str(CACHE)], check=True, timeout=60)
        package.unlink()
        program.write_bytes(program.read_bytes().replace(TEMPLATES, UNPACKED_TEMPLATES))
    except subprocess.SubprocessError as error:
        return f"downloading the package {PACKAGE}: {error}"
    return program


@contextmanager
def running_alertmanager(program: Path, directory: Path, notify: str) -> Iterator[str]:
    """Start Alertmanager on a free port; it notifies the given URL. Yields its own."""
    config = directory / "alertmanager.yml"
    config.write_text(CONFIG.format(url=notify))
    [port] = free_ports(1)
    command: list[str | Path] = [
        program,
        f"--config.file={config}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    url = f"http://127.0.0.1:{port}"
    with running_program(
        command,
        f"{url}/-/ready",
        log=directory / "alertmanager.log",
        cwd=program.parents[2],  # where an unpacked one has its templates
    ):
        yield url
