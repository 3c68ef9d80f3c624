"""The tests' own Java programs, each compiled once on a machine.

Java runs a source file as well, but compiles it at every start, for one to two seconds.
"""

import hashlib
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from broker_classes import archive_options

from streaming.jvm.java import find_java, said_of_version

_SOURCES: Final = Path(__file__).parent / "java"


def java_program(name: str, jars: Sequence[Path], *arguments: str) -> list[str]:
    """Return the command line that runs `java/<name>.java` with the jars of these folders."""
    path = ":".join([*(f"{folder}/*" for folder in jars), str(java_classes(name, jars))])
    return [str(find_java()), *quick_options(jars[0]), "-cp", path, name, *arguments]


def quick_options(jars: Path) -> list[str]:
    """Return the options of a JVM that runs for seconds, and whose class path begins with these jars."""
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dlog4j2.level=OFF"]
    return [*options, *archive_options(jars)]


def java_classes(name: str, jars: Sequence[Path]) -> Path:
    """Return the folder with the classes of `java/<name>.java`, compiled with the jars of these folders."""
    return _compiled(_SOURCES / f"{name}.java", tuple(jars))


@cache
def _compiled(source: Path, folders: tuple[Path, ...]) -> Path:
    """Return the folder of a program's classes beside the jars; compile it if there is none."""
    jars = [str(jar) for folder in folders for jar in sorted(folder.glob("*.jar"))]
    told = "\n".join([said_of_version(find_java()), source.read_text(), *jars])
    classes = folders[0].parent / f"{source.stem}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"
    if not classes.exists():
        with TemporaryDirectory(dir=classes.parent, prefix=f".{source.stem}-") as made:
            command = [str(find_java()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
            command += ["-d", f"{made}/classes", "-cp", ":".join(jars), str(source)]
            subprocess.run(command, check=True)
            with suppress(OSError):  # another process was quicker
                Path(made, "classes").rename(classes)
    return classes
