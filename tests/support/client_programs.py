"""Clients of other languages and makers, made ready in a cache: each a command, or why there is none.

Their versions and sums stand in `clients/` (`go/go.sum`, `kafkajs/package-lock.json`, `kafka-python.txt`,
`quarkus/pom.xml`).
Nothing is installed.
Programs of their own (KMinion, kafka_exporter) are used if they are on PATH or named in the environment.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent / "clients"
CACHE: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "offsetlake-tests" / "clients"
)

_LIMIT_S: Final = 600
_MAVEN: Final = "apache-maven-3.9.11"
_MAVEN_SHA256: Final = "0d7125e8c91097b36edb990ea5934e6c68b4440eef4ea96510a0f6815e7eeadb"
_GO: Final = ("/usr/local/go/bin/go",)


class MissingError(Exception):
    """A program cannot be had on this machine; the text says why."""


@dataclass(frozen=True)
class Program:
    """A command that asks `HOST:PORT GROUP...` and prints its answers as JSON."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def ask(self, bootstrap: str, groups: Sequence[str]) -> str:
        """Return what it prints."""
        ran = subprocess.run(
            [*self.command, bootstrap, *groups],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


def kafka_python() -> Program:
    """kafka-python, from PyPI, beside the packages of the project rather than among them."""
    script, sums = HERE / "ask_kafka_python.py", HERE / "kafka-python.txt"
    folder = made("kafka-python", sums.read_bytes(), pip_into(sums))
    return Program([sys.executable, str(script)], {"PYTHONPATH": str(folder)})


def kafkatop() -> Program:
    """kafkatop, from PyPI: groups with their states, and the least and the largest lag of each topic."""
    folder = python_package("kafkatop==1.16", before="2026-11-20")
    options = ["--all", "--summary-json", "--kafka-broker"]
    return Program([sys.executable, str(folder / "kafkatop.py"), *options], {"PYTHONPATH": str(folder)})


def kaskade() -> Program:
    """kaskade, from PyPI: topics with their groups, members, records and lag."""
    folder = python_package("kaskade==5.1.0", before="2026-11-20")
    return Program([sys.executable, str(HERE / "ask_kaskade.py")], {"PYTHONPATH": str(folder)})


def kafkajs() -> Program:
    """The client kafkajs, from npm."""
    node, npm = _found("node"), _found("npm")
    sources = [HERE / "kafkajs" / name for name in ("package.json", "package-lock.json", "ask.js", "soak.js")]

    def make(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)])

    folder = made("kafkajs", b"".join(source.read_bytes() for source in sources), make)
    return Program([node, str(folder / "ask.js")], {"KAFKAJS_NO_PARTITIONER_WARNING": "1"})


def kadm() -> Program:
    """The client kadm, of franz-go."""
    return Program([_go_program(), "kadm"])


def sarama(version: str = "") -> Program:
    """The client Sarama; `version` is that of the requests that it sends (default: its own)."""
    return Program([_go_program(), "sarama"], {"SARAMA_VERSION": version})


def exporter(name: str, variable: str) -> str:
    """Return a program that is there already: named by an environment variable, or on PATH."""
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        raise MissingError(f"{name} is not on PATH, and {variable} does not name it")
    return found


def go_program(package: str) -> Path:
    """Return a program of a Go package, given with its version; Go compares it with its checksum database."""
    go = _found("go", *_GO)

    def make(folder: Path) -> None:
        _run([go, "install", package], environment={"GOBIN": str(folder)})

    folder = made(_name_of(package), package.encode(), make)
    return next(folder.iterdir())


def npm_program(package: str, script: str, *, before: str) -> Sequence[str]:
    """Return the command of a script in an npm package, given with its version.

    The packages that it needs are the newest ones `before` a day.
    """
    node, npm = _found("node"), _found("npm")

    def make(folder: Path) -> None:
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund"]
        _run([npm, "install", *quiet, f"--before={before}", "--prefix", str(folder), package])

    name = _name_of(package)
    return [node, str(made(name, f"{package} {before}".encode(), make) / "node_modules" / name / script)]


def keda() -> Program:
    """KEDA's scaler for Kafka: the lag of a group in a topic. With two cores, it is built in half an hour."""
    return Program([str(made_by_go("keda", HERE / "keda", ["."], ldflags="-s -w", limit_s=3_600) / "keda")])


QUARKUS: Final = HERE / "quarkus"
"""An application of Quarkus that does nothing itself."""


def quarkus() -> Sequence[str]:
    """Return the command that runs a copy of `QUARKUS`, in its folder, in dev mode; settings are added to it
    as `-Dname=value`. Maven downloads 150 MB."""
    maven = _maven()

    def command(cached: Path, *arguments: str) -> list[str]:
        return [*maven, "--batch-mode", f"-Dmaven.repo.local={cached}/repository", *arguments]

    def make(cached: Path) -> None:
        copy = shutil.copytree(QUARKUS, cached / "copy")
        _run(command(cached, "--strict-checksums", "quarkus:go-offline", "test-compile"), directory=copy)

    contents = b"".join(file.read_bytes() for file in sorted(QUARKUS.rglob("*")) if file.is_file())
    quiet = ("-Ddebug=false", "-DquarkusRegistryClient=false", "-Dquarkus.analytics.disabled=true")
    return command(made("quarkus", contents, make), "quarkus:dev", *quiet)


def _maven() -> Sequence[str]:
    """Return the command of the Maven that Quarkus needs, which Debian's Maven downloads."""
    mvn = _found("mvn")

    def make(folder: Path) -> None:
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
        artifact = f"-Dartifact=org.apache.maven:{_MAVEN.replace('-maven-', '-maven:')}:zip:bin"
        _run([mvn, "--batch-mode", copy, artifact, f"-DoutputDirectory={folder}"])
        archive = folder / f"{_MAVEN}-bin.zip"
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == _MAVEN_SHA256, archive
        shutil.unpack_archive(archive, folder)

    folder = made(_MAVEN, _MAVEN_SHA256.encode(), make)
    return ["sh", str(folder / _MAVEN / "bin" / "mvn")]


def python_package(package: str, *, before: str) -> Path:
    """Return the folder of a package from PyPI, given with its version, with the packages that it needs: the
    newest ones `before` a day."""

    def make(folder: Path) -> None:
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        _run([*uv, "--target", str(folder), "--exclude-newer", before, package])

    name, _, version = package.partition("==")
    return made(f"{name}-{version}", f"{package} {before}".encode(), make)


def _name_of(package: str) -> str:
    return package.partition("@")[0].rpartition("/")[2]


def _go_program() -> str:
    return str(made_by_go("go", HERE / "go", ["."]) / "clients")


def made_by_go(
    name: str, sources: Path, packages: Sequence[str], *, ldflags: str = "", limit_s: float = _LIMIT_S
) -> Path:
    """Return a folder with the programs of packages of the Go module in `sources`."""
    go = _found("go", *_GO)
    files = sorted(file for file in sources.rglob("*") if file.is_file())

    def make(folder: Path) -> None:
        command = [go, "build", "-ldflags", ldflags, "-o", f"{folder}/", *packages]
        _run(command, directory=sources, environment={"CGO_ENABLED": "0"}, limit_s=limit_s)

    contents = b"".join(file.read_bytes() for file in files)
    return made(name, contents + "\n".join([ldflags, *packages]).encode(), make)


def go_module_folder(module: str) -> Path:
    """Return the folder with the files of a Go module, given with its version."""
    ran = _run(
        [_found("go", *_GO), "mod", "download", "-json", module], directory=Path(tempfile.gettempdir())
    )
    return Path(json.loads(ran)["Dir"])


def _found(name: str, *others: str) -> str:
    found = next((path for one in (name, *others) if (path := shutil.which(one))), None)
    if found is None:
        raise MissingError(f"{name} is not on PATH")
    return found


def made(name: str, contents: bytes, make: Callable[[Path], None], *, cache: Path = CACHE) -> Path:
    """Return the folder of a program, filled the first time; another content has another folder."""
    folder = cache / f"{name}-{hashlib.sha256(contents).hexdigest()[:8]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            filling = Path(scratch) / "filling"
            filling.mkdir()
            make(filling)
            try:
                filling.rename(folder)
            except OSError:  # another process was first, with the same content
                if not folder.exists():
                    raise
    return folder


def pip_into(sums: Path) -> Callable[[Path], None]:
    """Return what installs the packages of a file with their digests into a folder."""

    def make(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _run([*pip, "--require-hashes", "--target", str(folder), "--requirement", str(sums)])

    return make


def _run(
    command: Sequence[str],
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
    limit_s: float = _LIMIT_S,
) -> str:
    """Return what a command prints."""
    try:
        ran = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingError(f"{command[0]} took longer than {limit_s:g} s") from error
    if ran.returncode:
        raise MissingError(f"{' '.join(command[:3])} failed: {(ran.stderr or ran.stdout).strip()[-500:]}")
    return ran.stdout
