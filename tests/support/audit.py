"""Audits what comes from others: known vulnerabilities, the lock, licences, files in this repository.

    python -m audit  # with tests/support on the path, as `make audit` has it

pip-audit and twine (`make dist`) get an environment of their own, `.venv/audit`, from `audit.lock`. Exit code
1: something was found, or could not be checked, which the last line says.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from streaming.jvm.jars import ensure_jars
from streaming.model.errors import OffsetlakeError

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
TOOL_LOCK = Path(__file__).with_name("audit.lock")

NOT_LOCKED = {"offsetlake", "pip", "setuptools", "wheel"}  # ourselves, and what makes an environment

LICENCES = frozenset(
    {
        *(
            "0BSD",
            "Apache-2.0",
            "BSD-2-Clause",
            "BSD-3-Clause",
            "CC0-1.0",
            "ISC",
            "MIT",
            "MIT-0",
            "MIT-CMU",
            "MPL-2.0",
        ),
        *("PSF-2.0", "Zlib"),
    }
)
"""Those that let others use, change and pass on offsetlake under Apache-2.0."""

EXCEPTIONS = {"crc32c": "LGPL-2.1-or-later: of kio, which the tests alone use, and nobody gets"}

OTHER_JARS = {"reactive-streams-1.0.4.jar": "MIT-0: so says its pom at Maven Central; the jar says nothing"}
"""Jars of the job that are not under Apache-2.0."""

_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",  # or BSD-2-Clause, which is as good
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.1-or-later",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}

_UPLOT = "streaming/serve/page/static/uplot"
_AXE = "tests/data/axe-core-4.14.1"

VENDORED = {
    "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    f"{_UPLOT}-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    f"{_UPLOT}-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    f"{_UPLOT}-LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    f"{_AXE}/LICENSE": "af175b9d96ee93c21a036152e1b905b0b95304d4ae8c2c921c7609100ba8df7e",
    f"{_AXE}/axe.min.js": "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
}
"""The files in this repository that others wrote, with their SHA-256: the text of the licence, uPlot (charts
of the pages) and axe-core (their tests), each with its own licence."""

_NOTICE = re.compile(rb"(?im)^\W*(copyright (\(c\)|\d{4})|spdx-license-identifier|@license)")
_PATH = re.compile(r"(^|/)(node_modules|third_party|vendor)/")
_PICTURE = re.compile(r"docs/page/[a-z]+\.png")
"""The pictures of our own pages."""

_TOOL_LIMIT_S = 600


class NotCheckedError(Exception):
    """Something could not be checked: by the sentence, why."""


def main() -> int:
    """Print what each check found; return the exit code."""
    found, unchecked = 0, []
    for name, check in CHECKS.items():
        try:
            lines = list(check())
        except NotCheckedError as error:
            print(f"{name}: NOT CHECKED: {error}")
            unchecked.append(name)
            continue
        print(f"{name}: {'nothing found' if not lines else f'{len(lines)} found'}", *lines, sep="\n  ")
        found += len(lines)
    print(_verdict(found, unchecked))
    return 1 if found or unchecked else 0


def _verdict(found: int, unchecked: list[str]) -> str:
    if found:
        return f"audit: FAILED: {found} found"
    if unchecked:
        return f"audit: INCOMPLETE: not checked: {', '.join(unchecked)}"
    return "audit: nothing found"


# --- known vulnerabilities -------------------------------------------------------------------------------


def vulnerabilities() -> Iterator[str]:
    """Ask PyPI, by pip-audit, about every version in the lock."""
    pip_audit = tool("pip-audit")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        options = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        ran = _run([str(pip_audit), *options, "--requirement", str(LOCK), "--output", str(report)])
        if not report.is_file():
            raise NotCheckedError(f"pip-audit could not have its data (offline?): {_last_line(ran)}")
        yield from of_report(json.loads(report.read_text()))


def of_report(report: Mapping[str, Any]) -> list[str]:
    """Return the vulnerabilities in a report of pip-audit.

    Raises `NotCheckedError` if there are packages that its data says nothing of, and no vulnerabilities.
    """
    packages = report["dependencies"]
    if not packages:
        raise NotCheckedError("no package is in the report of pip-audit: expected those of the lock")
    lines = [
        f"{one['name']} {one['version']}: {known['id']}, fixed in: {', '.join(known['fix_versions']) or '-'}"
        for one in packages
        for known in one.get("vulns", [])
    ]
    skipped = [one for one in packages if "skip_reason" in one]
    if skipped and not lines:
        raise NotCheckedError(
            f"of {len(skipped)} of {len(packages)} packages there was no data, such as "
            f"{skipped[0]['name']} ({skipped[0]['skip_reason']}): expected pypi.org, not a mirror without it"
        )
    return lines


def tool(name: str) -> Path:
    """Return a program of the tools' own environment, which is made if it is not that of its lock."""
    environment = Path(sys.prefix, "audit")
    made_of = environment / "made-of.lock"
    if not made_of.is_file() or made_of.read_bytes() != TOOL_LOCK.read_bytes():
        uv = str(Path(sys.executable).with_name("uv"))
        _run([uv, "venv", "--clear", str(environment)], why="making an environment for the tools")
        options = ["--python", str(environment), "--require-hashes", "--only-binary", ":all:"]
        install = [uv, "pip", "install", *options, "--requirement", str(TOOL_LOCK)]
        _run(install, why="installing pip-audit and twine (offline?)")
        made_of.write_bytes(TOOL_LOCK.read_bytes())
    return environment / "bin" / name


def _run(command: list[str], *, why: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command; with `why` it must succeed."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TOOL_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCheckedError(f"{why or command[0]}: {error}") from error
    if why is not None and ran.returncode:
        raise NotCheckedError(f"{why}: {_last_line(ran)}")
    return ran


def _last_line(ran: subprocess.CompletedProcess[str]) -> str:
    lines = (ran.stdout + ran.stderr).strip().splitlines()
    return lines[-1].strip(" \u2502\u2570\u2500\u25b6\u251c") if lines else f"exit code {ran.returncode}"


# --- the lock --------------------------------------------------------------------------------------------


def lock() -> Iterator[str]:
    """Compare the lock with pyproject.toml and with what is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [one for group in project["dependency-groups"].values() for one in group if isinstance(one, str)]
    installed: dict[str, str] = {
        canonicalize_name(one.metadata["Name"]): one.version for one in metadata.distributions()
    }
    extras = [one for extra in project["project"]["optional-dependencies"].values() for one in extra]
    required = [*project["project"]["dependencies"], *extras, *groups]
    yield from of_lock(LOCK.read_text(), required, installed)


def of_lock(text: str, required: Iterable[str], installed: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with a lock: a line without a version or hash, a requirement that it does not meet,
    and an installed package that is another or none of it."""
    pinned: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        if entry.startswith("#"):
            continue
        one = Requirement(entry.partition("\\\n")[0].partition("--hash")[0].strip())
        if not re.fullmatch(r"==[^*,]+", str(one.specifier)) or "--hash=sha256:" not in entry:
            yield f"{one.name}: expected one version and SHA-256 sums in the lock, found {one}"
        if one.marker is None or one.marker.evaluate():
            pinned[canonicalize_name(one.name)] = str(one.specifier).removeprefix("==")
    for requirement in map(Requirement, required):
        version = pinned.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            yield f"{requirement}: expected it in the lock, found {version or 'none'}: run `make lock`"
    for name, version in sorted(installed.items()):
        expected = pinned.get(name)
        if name not in NOT_LOCKED and (expected is None or Version(expected) != Version(version)):
            yield f"{name} {version}: expected {expected or 'none'} to be installed: run `make clean setup`"


# --- licences --------------------------------------------------------------------------------------------


def licences() -> Iterator[str]:
    """Look at the licences of all that is installed, and of the jars that the job may need."""
    for one in metadata.distributions():
        name = canonicalize_name(one.metadata["Name"])
        licence = licence_of(one.metadata)
        if name not in EXCEPTIONS and not is_allowed(licence):
            yield f"{name} {one.version}: {licence or 'no licence that is known'}"
    try:
        folders = [ensure_jars("connector"), ensure_jars("msk-iam"), ensure_jars("s3a")]
    except OffsetlakeError as error:
        raise NotCheckedError(str(error)) from error
    for jar in [jar for folder in folders for jar in sorted(folder.glob("*.jar"))]:
        if jar.name not in OTHER_JARS and not says_apache(jar):
            yield f"{jar.name}: does not say that it is under Apache-2.0"


def licence_of(about: Any) -> str:
    """Return the licence in the metadata of a package as an SPDX expression; empty: none that is known."""
    if expression := about.get("License-Expression"):
        return str(expression)
    classifiers = [
        one.rpartition(" :: ")[2] for one in about.get_all("Classifier", []) if "License ::" in one
    ]
    said = [*classifiers, (about.get("License") or "").strip()]
    known = [_SPDX.get(one, one) for one in said if one in _SPDX or one in LICENCES]
    return known[0] if known else ""


def is_allowed(expression: str) -> bool:
    """Tell whether a licence is one of ours: each part of AND, and one of OR.

    >>> is_allowed("MIT AND (GPL-3.0 OR Apache-2.0)"), is_allowed("MIT AND GPL-3.0"), is_allowed("")
    (True, False, False)
    """
    parts = re.split(r"\s+AND\s+", expression.strip())
    return all(any(one.strip("() ") in LICENCES for one in re.split(r"\s+OR\s+", part)) for part in parts)


def says_apache(jar: Path) -> bool:
    """Tell whether a jar holds the text of the licence, or names it in its manifest or its pom."""
    with zipfile.ZipFile(jar) as files:
        names = [
            name for name in files.namelist() if re.search(r"(?i)license[^/]*$|MANIFEST.MF$|pom.xml$", name)
        ]
        text = b"\n".join(files.read(name) for name in names)
    return re.search(rb"Apache License,?\s+Version 2.0|apache.org/licenses/LICENSE-2.0", text) is not None


# --- files of others -------------------------------------------------------------------------------------


def files() -> Iterator[str]:
    """Look for files in this repository that others wrote: each has to be in `VENDORED`."""
    listed = _run(["git", "-C", str(ROOT), "ls-files", "-z"], why="listing the files of the repository")
    names = [name for name in listed.stdout.split("\0") if name]
    yield from of_files({name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()})


def of_files(contents: Mapping[str, bytes]) -> Iterator[str]:
    """Yield what is wrong with files by their names: one of others that was changed or is gone, one that is
    binary or has another's notice and is none of those."""
    for name, digest in VENDORED.items():
        found = sha256(contents[name]).hexdigest() if name in contents else "no such file"
        if found != digest:
            yield f"{name}: expected SHA-256 {digest}, found {found}"
    for name, content in contents.items():
        if name in VENDORED or _PICTURE.fullmatch(name):
            continue
        if b"\0" in content or _NOTICE.search(content) or _PATH.search(name):
            yield f"{name}: seems to be of others (binary, their notice or folder), and is not in VENDORED"


CHECKS = {"lock": lock, "licences": licences, "files of others": files, "vulnerabilities": vulnerabilities}

if __name__ == "__main__":
    sys.exit(main())
