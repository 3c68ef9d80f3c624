"""The images: they run, end when asked to, and hold nothing of the machine that built them.

Only `make image` runs this, after it has built them. Containers run by `buildah run`, isolated by chroot:
podman cannot run on every machine. So the network is that of the machine, and a read-only root file system is
tried by a user who may write none of it.
"""

import base64
import gzip
import json
import os
import re
import signal
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from command_process import started
from images import TARGETS, buildah, image_of, secrets
from installed import PYPROJECT, ROOT

from streaming.demo.local_broker import LocalBroker, free_ports
from streaming.demo.traffic import DemoTraffic
from streaming.queries.offsets import OffsetQueries
from streaming.tables.tables import Tables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("IMAGE") != "1", reason="builds images for minutes: make image"),
]

USER: Final = 10_001
HOME: Final = "/var/lib/offsetlake"
LARGEST: Final = {"serve": 550e6, "job": 1_500e6}
EXTRA: Final = {"msk-iam": 55e6, "s3a": 15e6}
"""What the job's image may have more, by what it was built with."""
CHROOT: Final = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def layers(target: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image as a folder of its compressed layers and its configuration."""
    folder = tmp_path_factory.mktemp("layers")
    buildah("push", "--quiet", image_of(target), f"oci:{folder}")
    return folder / "blobs" / "sha256"


@contextmanager
def container(target: str) -> Iterator[str]:
    name = buildah("from", "--pull-never", image_of(target))
    try:
        yield name
    finally:
        buildah("rm", name)


def command(name: str, volume: Path, *words: str, env: Sequence[str] = ()) -> list[str]:
    variables = [word for one in env for word in ("--env", one)]
    return ["buildah", "run", *variables, "--volume", f"{volume}:{HOME}", name, "--", *words]


def ran(name: str, volume: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(name, volume, *words), env=CHROOT, capture_output=True, text=True)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    os.chown(folder, USER, USER)
    for above in folder.parents[:4]:
        above.chmod(above.stat().st_mode | 0o011)  # pytest's folders are its own user's
    return folder


def running(name: str, volume: Path, log: Path, *words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """A command in a container, which does not outlive the test."""
    env = ["HTTPS_PROXY=http://127.0.0.1:9"]  # no registry can be reached
    return started(command(name, volume, *words, env=env), output=log, env=CHROOT)


def stop(process: subprocess.Popen[str]) -> int:
    """Send SIGTERM to the program in the container, which buildah does not; return the exit code."""
    [program] = [pid for pid in offspring(process.pid) if command_of(parent_of(pid)) == "buildah-chroot-exec"]
    assert uid_of(program) == USER
    os.kill(program, signal.SIGTERM)
    return process.wait(timeout=120)


def offspring(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from offspring(child)


def _status(pid: int, field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def uid_of(pid: int) -> int:
    return _status(pid, "Uid")


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode()


def parent_of(pid: int) -> int:
    return _status(pid, "PPid")


def wait_for(text: str, log: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.5)


def test_job_and_serve_run_and_end_when_asked_to(tmp_path: Path, volume: Path) -> None:
    job_log, serve_log = tmp_path / "job.log", tmp_path / "serve.log"
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (
        container("job") as job,
        container("serve") as serve,
        LocalBroker(tmp_path / "broker") as broker,
        DemoTraffic(broker.bootstrap_servers),
    ):
        run = ("offsetlake", "run", "--bootstrap-server", broker.bootstrap_servers, "--trigger", "1s")
        with running(job, volume, job_log, *run) as process:
            wait_for("batch 1", job_log, process)
            status = ran(job, volume, "offsetlake", "status", "--totals", "--max-age", "5m")
            assert status.returncode == 0, status.stderr
            with running(serve, volume, serve_log, "offsetlake", "serve", "--http", url[7:]) as served:
                wait_for(url, serve_log, served)
                assert urllib.request.urlopen(f"{url}/healthz").status == 200
                assert b"offsetlake_group" in urllib.request.urlopen(f"{url}/metrics").read()
                assert stop(served) == 0, serve_log.read_text()
            assert stop(process) == 0, job_log.read_text()
    assert "stopped" in job_log.read_text()
    assert OffsetQueries(Tables(str(volume / "warehouse"))).list_groups().groups
    print("\nrun by buildah run, with the isolation of a chroot")


def test_java_runs_with_a_heap_for_which_it_has_no_archive_of_classes(volume: Path) -> None:
    with container("job") as name:
        assert ran(name, volume, "java", "-XX:-UseCompressedOops", "-version").returncode == 0


def test_the_job_has_its_archive_of_classes(volume: Path) -> None:
    program = (
        "from streaming.jvm.jars import ensure_jars; from streaming.jvm.class_archive import find_archive; "
        "print(find_archive(ensure_jars('connector')))"
    )
    with container("job") as name:
        assert "/opt/offsetlake/jars/classes-" in ran(name, volume, "python", "-c", program).stdout


def test_the_program_may_write_its_own_folder_alone(target: str, volume: Path) -> None:
    find = "find / -xdev -writable -not -type l -not -path '/dev/*' -not -path '/proc/*' -not -path '/sys/*'"
    with container(target) as name:
        found = ran(name, volume, "sh", "-c", f"id -u; {find}").stdout.split()
    assert found[0] == str(USER)
    assert set(found[1:]) <= {HOME, "/tmp", "/var/tmp", "/run/lock", "/dev", "/proc", "/sys"}


def test_serve_has_no_java_and_no_library_of_the_job(volume: Path) -> None:
    with container("serve") as name:
        assert ran(name, volume, "java", "-version").returncode != 0
        assert ran(name, volume, "python", "-c", "import pyspark").returncode != 0
        assert ran(name, volume, "python", "-c", "import pandas").returncode != 0


# --- layers ----------------------------------------------------------------------------------------------


def test_sizes(target: str, layers: Path) -> None:
    compressed = unpacked = 0
    for blob in layers.iterdir():
        content = blob.read_bytes()
        if content[:2] == b"\x1f\x8b":
            compressed += len(content)
            unpacked += len(gzip.decompress(content))
    print(f"\n{image_of(target)}: {unpacked / 1e6:.0f} MB unpacked, {compressed / 1e6:.0f} MB compressed")
    extra = sum(EXTRA[one] for one in os.environ.get("EXTRA", "").split()) if target == "job" else 0
    assert unpacked <= LARGEST[target] + extra


def certificates(bundle: Path) -> set[bytes]:
    text = bundle.read_text()
    bodies = re.findall("-----BEGIN CERTIFICATE-----(.*?)-----END", text, re.DOTALL)
    return {base64.b64decode(body) for body in bodies}


def contents(layers: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file of every layer, and the configuration of the image."""
    for blob in layers.iterdir():
        if blob.read_bytes()[:2] != b"\x1f\x8b":
            yield blob.name, blob.read_bytes()
            continue
        with tarfile.open(blob) as layer:
            for member in layer:
                file = layer.extractfile(member) if member.isfile() else None
                yield member.name, b"" if file is None else file.read()


def test_nothing_of_the_building_machine_is_in_a_layer(target: str, layers: Path) -> None:
    needles = {line.partition("=")[2].strip("'").encode() for line in secrets(os.environ).splitlines()}
    needles.discard(b"/run/secrets/ca")
    bundle = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    of_debian = {
        one for file in Path("/usr/share/ca-certificates").rglob("*.crt") for one in certificates(file)
    }
    ours = certificates(bundle) - of_debian
    needles |= {base64.b64encode(one)[64:128] for one in ours} | ours
    print(f"\n{len(ours)} certificates of this machine, and {len(needles)} needles in all")
    names, found, seen = set(), [], False
    for name, content in contents(layers):
        names.add(name)
        seen |= b"Kafka's __consumer_offsets" in content  # a needle that is there is found
        found += [name for needle in needles if needle in content.replace(b"\n", b"")]
    assert found == []
    assert seen
    assert not [name for name in names if re.search(r"(^|/)(pip\.conf|\.netrc|uv\.toml|\.pypirc)$", name)]
    assert not [
        name for name in names if name.startswith(("build/", "run/secrets/")) and name != "run/secrets/"
    ]


def test_the_configuration_says_how_it_is_run(target: str, layers: Path) -> None:
    documents = [
        json.loads(blob.read_bytes())
        for blob in layers.iterdir()
        if blob.stat().st_size < 50_000 and blob.read_bytes()[:1] == b"{"
    ]
    [config] = [one for one in documents if "rootfs" in one]
    assert config["config"]["User"] == f"{USER}:{USER}"
    assert config["config"]["Entrypoint"] == ["offsetlake"]


def test_what_an_image_contains_is_listed(target: str) -> None:
    listed = json.loads((ROOT / "dist" / f"sbom-{target}.cdx.json").read_text(encoding="utf-8"))
    versions = {
        one["purl"].partition("@")[0]: one["version"] for one in listed["components"] if "purl" in one
    }
    assert versions["pkg:pypi/offsetlake"] == PYPROJECT["project"]["version"]
    assert versions["pkg:pypi/deltalake"] == metadata.version("deltalake")
    assert "pkg:deb/debian/python3" in versions
    has_java = target == "job"
    assert ("pkg:deb/debian/openjdk-17-jre-headless" in versions) == has_java
    assert bool([one for one in listed["components"] if one["name"].startswith("rocksdbjni-")]) == has_java
