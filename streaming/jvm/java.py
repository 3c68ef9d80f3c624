"""Finds the Java for Spark, Ivy and the local broker, and checks its version."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from streaming.model.errors import OffsetlakeError

MINIMUM_JAVA: Final = 17  # required by Spark 4 and Kafka 4

_EXPECTED: Final = f"looking for Java: expected Java {MINIMUM_JAVA} or newer"
_HINT: Final = (
    f"Install a Java runtime {MINIMUM_JAVA} or newer (for example Eclipse Temurin) and put it on PATH, "
    "or set JAVA_HOME to its directory."
)


class JavaError(OffsetlakeError):
    """No usable Java runtime was found."""

    @classmethod
    def not_found(cls, where: str) -> "JavaError":
        return cls(f"{_EXPECTED}, found no java {where}. {_HINT}")

    @classmethod
    def too_old(cls, java: Path, version: int) -> "JavaError":
        return cls(f"{_EXPECTED}, found Java {version} at {java}. {_HINT}")

    @classmethod
    def no_account(cls, uid: int) -> "JavaError":
        return cls(
            f"starting Spark: expected that user {uid} has an account (a line in /etc/passwd), found none; "
            "Hadoop asks for its name. In a container, run as a user that its image has."
        )

    @classmethod
    def unusable(cls, java: Path, found: str) -> "JavaError":
        """The program does not behave like Java."""
        return cls(f"{_EXPECTED}, found that `{java} -version` does not name its version: {found}. {_HINT}")


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of `java`, of version 17 or newer: that of JAVA_HOME, else the first one on PATH.

    A JAVA_HOME without Java is an error, since Spark would not ignore it either. Raises `JavaError`.
    """
    java = _locate_java(environment)
    version = java_version(java)
    if version < MINIMUM_JAVA:
        raise JavaError.too_old(java, version)
    return java


def require_account() -> None:
    """Raise `JavaError` if the user of this process has no account; containers may run as any user id."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise JavaError.no_account(os.getuid()) from error


def java_version(java: Path) -> int:
    """Return the feature version (8, 11, 17, ...) that this `java` reports."""
    said = said_of_version(java)
    version = parse_java_version(said)
    if version is None:
        raise JavaError.unusable(java, said or "no output")
    return version


@lru_cache
def said_of_version(java: Path) -> str:
    """Return the output of `java -version`: version, build and vendor; cached per path."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaError.unusable(java, str(error)) from error
    return (answer.stderr + answer.stdout).strip()


def parse_java_version(text: str) -> int | None:
    """Return the feature version in the output of `java -version`, or None.

    >>> parse_java_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> parse_java_version('java version "1.8.0_392"')
    8
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def _locate_java(environment: Mapping[str, str]) -> Path:
    if home := environment.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise JavaError.not_found(f"at {java}, where JAVA_HOME={home} says that it is")
        return java
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is None:
        raise JavaError.not_found("on PATH, and JAVA_HOME is not set")
    return Path(on_path)
