"""Builds the images of conf/deploy/Dockerfile with buildah, for `make image`.

    python -m images  # with tests/support on the path

Where the base cannot be pulled, a stand-in of the same Debian release and Python takes its place. Index
settings and certificates of this machine come in as secrets, and must be in no layer.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

ROOT: Final = Path(__file__).parents[2]
CONTEXT: Final = ROOT / "dist" / "image"
TARGETS: Final = ("serve", "job")
BASE: Final = "docker.io/library/python:3.11-slim-bookworm"
_MSK_IAM: Final = "msk-iam"
STAND_IN: Final = "localhost/offsetlake-base"

_ENVIRONMENT: Final = {"BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs", **os.environ}
_CA: Final = "/run/secrets/ca"

_AS_IN_SLIM_IMAGES: Final = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/info/*",
)


def image_of(target: str) -> str:
    return f"localhost/offsetlake-{target}"


def buildah(*arguments: str | Path, input: str | None = None, quiet: bool = True) -> str:
    """Run buildah, which must succeed; return its standard output."""
    ran = subprocess.run(
        ["buildah", *map(str, arguments)],
        env=_ENVIRONMENT,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
        input=input,
    )
    if ran.returncode:
        raise SystemExit(f"buildah {arguments[0]}: exit code {ran.returncode}. {ran.stderr or ''}")
    return (ran.stdout or "").strip()


def secrets(environment: Mapping[str, str]) -> str:
    """Return index settings and proxies of this machine, as lines for a shell."""
    chosen = {
        name: value
        for name, value in environment.items()
        if name.startswith("UV_") or name.upper() in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    }
    pip = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    asked = subprocess.run(pip, capture_output=True, text=True)
    if asked.returncode == 0:
        chosen.setdefault("UV_DEFAULT_INDEX", asked.stdout.strip())
    if "SSL_CERT_FILE" in environment:
        chosen["SSL_CERT_FILE"] = _CA
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(chosen.items()))


def fill_context(jar_sets: Sequence[str]) -> None:
    """Put the wheel, its lock, uv and the jars into the context."""
    shutil.rmtree(CONTEXT, ignore_errors=True)
    CONTEXT.mkdir(parents=True)
    uv = str(Path(sys.executable).with_name("uv"))
    build = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", str(CONTEXT)], cwd=ROOT, check=True)
    for file in (uv, ROOT / "pyproject.toml", ROOT / "requirements.lock"):
        shutil.copy(file, CONTEXT)
    sets = [word for one in jar_sets for word in ("--set", one)]
    command = [sys.executable, "-P", "-m", "streaming.cli", "jars", "--to", str(CONTEXT / "jars"), *sets]
    subprocess.run(command, cwd=ROOT, check=True)


def base() -> str:
    """Return the base, pulled, or its stand-in, made if it is not there yet."""
    pull = ["timeout", "60", "buildah", "pull", "--quiet", BASE]
    if subprocess.run(pull, env=_ENVIRONMENT, capture_output=True).returncode == 0:
        return BASE
    print(f"{BASE} cannot be pulled, and so was not tried: {STAND_IN} stands in for it", flush=True)
    if not buildah("images", "--quiet", "--filter", f"reference={STAND_IN}"):
        _make_stand_in()
    return STAND_IN


def _make_stand_in() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        tar = Path(scratch, "base.tar")
        options = [
            *("--quiet", "--variant=minbase", "--include=usr-is-merged,ca-certificates,python3"),
            *("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",),
            '--aptopt=APT::Install-Recommends "0"',
            *(f"--dpkgopt={one}" for one in _AS_IN_SLIM_IMAGES),
        ]
        subprocess.run(["mmdebstrap", *options, "bookworm", str(tar)], check=True)
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, tar, "/")
        buildah("commit", "--quiet", "--rm", container, STAND_IN)


def build(target: str, of: str, extras: Sequence[str]) -> None:
    of_python = _MSK_IAM if _MSK_IAM in extras else ""  # s3a has jars alone
    with tempfile.TemporaryDirectory() as scratch:
        index, ca = Path(scratch, "index"), Path(scratch, "ca")
        index.write_text(secrets(os.environ))
        if certificates := os.environ.get("SSL_CERT_FILE"):
            shutil.copy(certificates, ca)
        else:
            ca.touch()
        buildah(
            *("build", "--pull-never", "--format", "docker", "--target", target, "--tag", image_of(target)),
            *("--build-arg", f"BASE={of}", "--build-arg", f"EXTRA={of_python}"),
            *("--secret", f"id=index,src={index}", "--secret", f"id=ca,src={ca}"),
            *("--file", ROOT / "conf" / "deploy" / "Dockerfile", CONTEXT),
        )


_LIST: Final = """
import hashlib, json, pathlib, subprocess
from importlib import metadata
asked = subprocess.check_output(["dpkg-query", "-W", "-f", "${Package} ${Version}\\n"], text=True)
jars = [one for root in ("/opt/offsetlake", "/usr/share") for one in pathlib.Path(root).rglob("*.jar")]
print(json.dumps({
    "deb": [line.split() for line in asked.splitlines()],
    "pypi": [[one.name.lower(), one.version] for one in metadata.distributions()],
    "jars": [[one.name, hashlib.sha256(one.read_bytes()).hexdigest()] for one in jars],
}))
"""


def bill_of_materials(target: str) -> dict[str, Any]:
    """Return what an image contains (CycloneDX 1.5): packages of Debian and Python, jars by SHA-256."""
    container = buildah("from", "--pull-never", image_of(target))
    try:
        found = json.loads(buildah("run", container, "--", "python3", "-c", _LIST))
    finally:
        buildah("rm", container)
    packages = [
        {"type": "library", "name": name, "version": version, "purl": f"pkg:{kind}{name}@{quote(version)}"}
        for kind, own in (("deb/debian/", found["deb"]), ("pypi/", found["pypi"]))
        for name, version in sorted(own)
    ]
    jars = [
        {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, digest in sorted(found["jars"])
    ]
    about = {"component": {"type": "container", "name": image_of(target)}}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "metadata": about,
        "components": [*packages, *jars],
    }


def main() -> int:
    for program in ("buildah", "mmdebstrap"):
        if shutil.which(program) is None:
            print(f"make image: expected {program}, found none. Debian: apt-get install buildah mmdebstrap")
            return 1
    extras = os.environ.get("EXTRA", "").split()
    fill_context(["connector", "broker", *extras])
    of = base()
    for target in TARGETS:
        build(target, of, extras)
        listed = ROOT / "dist" / f"sbom-{target}.cdx.json"
        listed.write_text(json.dumps(bill_of_materials(target), indent=1) + "\n", encoding="utf-8")
        print(f"built {image_of(target)}; what it contains: {listed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
