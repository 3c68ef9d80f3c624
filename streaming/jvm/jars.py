"""Fills the jar cache from the exact list in `conf/ivy.xml`, with the Ivy jar inside PySpark.

`conf/jars.sha256` has the digest of each jar. A jar set is put in place once all digests match, and checked
again whenever it is requested (7 ms for the connector). A cache that others may write is refused.

A jar set is one directory, which never changes afterwards: its name has a digest of its list, so another
release of offsetlake uses another directory, and a running process keeps its jars. Ivy retrieves into a
temporary directory beside it, which is then renamed: a killed download leaves no jar set, only this
directory, which is deleted a day later, and Ivy's own downloads, from which the next attempt continues. A
complete set needs neither network nor JVM.
"""

import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit
from xml.etree import ElementTree

from streaming.common.conf_dir import conf_dir
from streaming.common.http_values import AN_ADDRESS, is_address, refused_text, without_user
from streaming.jvm.java import find_java
from streaming.jvm.ownership import refuse_foreign, refuse_replaceable
from streaming.model.errors import MisuseError, OffsetlakeError

_log = logging.getLogger(__name__)

JarSet = Literal[
    "connector",
    "msk-iam",
    "s3a",
    "broker",
    "tools",
    "tools-3.9.2",
    "tools-2.8.2",
    "broker-3.9.2",
    "broker-4.4.0",
]

_CLASSIFIER: Final = "{http://ant.apache.org/ivy/maven}classifier"

_MODE: Final = 0o755  # whatever the umask: a cache that others may write is refused

_LEFT_AFTER_S: Final = 86_400.0  # no retrieval takes as long

_SILENCE_LIMIT: Final = 90.0  # seconds; longer than any single wait that ivysettings.xml allows
_EXPLAINING: Final = (  # lines of Ivy's log that explain a failure, the most specific first
    re.compile(r"Server access error at url .*"),
    re.compile(r"module not found: .*"),
    re.compile(r".*\[FAILED *\].*"),
    re.compile(r".*\b(?:Exception|error|ERROR)\b.*"),
)


class JarError(OffsetlakeError):
    """Required jars are missing and could not be retrieved."""

    @classmethod
    def not_retrieved(cls, conf: JarSet, cache: Path, *, what: str, ivy_says: str, log: Path) -> "JarError":
        """Ivy failed; the message quotes it."""
        return cls(
            f"retrieving the {conf} jars of {ivy_file()} into {cache}: {what}. Ivy says: {ivy_says}. "
            "Check the network; behind a proxy set HTTPS_PROXY, with a mirror of your own name Ivy settings "
            f"in OFFSETLAKE_IVY_SETTINGS; then run it again. Ivy's whole log: {log}"
        )

    @classmethod
    def others(cls, conf: JarSet, difference: str, log: Path) -> "JarError":
        """The registry returned jars other than the listed ones."""
        return cls(
            f"retrieving the {conf} jars of {ivy_file()}: {difference}. None was installed. Try again; if "
            "it persists, the registry or a mirror has a file other than the one of this release: contact "
            f"its operator. Ivy's whole log: {log}"
        )

    @classmethod
    def unusable(cls, cache: Path, error: OSError) -> "JarError":
        return cls(
            f"jar cache {cache}: expected to read and write there, found {error}. Name a folder of your own "
            "in OFFSETLAKE_JARS."
        )

    @classmethod
    def homeless(cls, uid: int) -> "JarError":
        return cls(
            f"jar cache: expected a folder in OFFSETLAKE_JARS, or a home folder of user {uid}, found "
            "neither. Name a folder of your own in OFFSETLAKE_JARS."
        )

    @classmethod
    def no_ivy(cls, found: str) -> "JarError":
        return cls(
            f"retrieving jars: expected the Ivy jar of PySpark, found {found}. "
            "Reinstall pyspark (`make setup`)."
        )


class RetrievalStoppedError(JarError):
    """The process is to end before the jars are there."""


def ensure_jars(conf: JarSet, *, cache: Path | None = None, stop: threading.Event | None = None) -> Path:
    """Return the directory that holds exactly the jars of this configuration, retrieved if need be.

    Warns of a set that was there and is replaced. Raises `JarError`, `RetrievalStoppedError` if `stop` is set
    meanwhile, and `ForeignFileError` where others may write the cache.
    """
    cache = default_cache() if cache is None else cache.resolve()
    directory = jar_directory(conf, cache)
    try:
        _refuse_foreign(cache, directory)
        _delete_left(cache)
        difference = difference_to_list(conf, directory)
        if difference is not None:
            if directory.exists():
                _log.warning("jars %s: %s; retrieved again", directory, difference)
            _retrieve(conf, directory, stop)
    except OSError as error:
        raise JarError.unusable(cache, error) from error
    return directory


def copy_jars(conf: JarSet, target: Path) -> Path:
    """Copy a jar set from the cache, where it is retrieved if need be, into a folder that can become the
    cache (OFFSETLAKE_JARS) of a machine without network access; a set that is there already is only checked.

    Returns the directory of the set in there. Raises as `ensure_jars` does.
    """
    target = target.resolve()
    directory = jar_directory(conf, target)
    if difference_to_list(conf, directory) is not None and (source := ensure_jars(conf)) != directory:
        try:
            _make_cache(target)
            with tempfile.TemporaryDirectory(dir=target, prefix=".copying-") as scratch:
                _put_in_place(conf, Path(shutil.copytree(source, Path(scratch, conf))), directory)
        except OSError as error:
            raise JarError.unusable(target, error) from error
    return ensure_jars(conf, cache=target)


def difference_to_list(conf: JarSet, directory: Path) -> str | None:
    """Describe how the directory differs from the listed jars, by name or content; None: not at all."""
    if not _has_listed_names(conf, directory):
        return f"expected {len(listed_jars(conf))} jars, found others"
    digests = listed_digests()
    for name in sorted(listed_jars(conf)):
        if (digest := sha256_of(directory / name)) != digests.get(name):
            return f"expected SHA-256 {digests.get(name, '(not listed)')} of {name}, found {digest}"
    return None


def jar_directory(conf: JarSet, cache: Path) -> Path:
    """Return the directory of the current jar set: `<cache>/<conf>-<digest of the list>`."""
    digest = hashlib.sha256("\n".join(sorted(listed_jars(conf))).encode()).hexdigest()
    return cache / f"{conf}-{digest[:8]}"


def listed_jars(conf: JarSet) -> frozenset[str]:
    """Return the file names of the jars that `conf/ivy.xml` lists for this configuration."""
    dependencies = ElementTree.parse(ivy_file()).iterfind("./dependencies/dependency")
    return frozenset(
        f"{dependency.attrib['name']}-{dependency.attrib['rev']}{_classifier(dependency)}.jar"
        for dependency in dependencies
        if dependency.attrib["conf"] == f"{conf}->default"
    )


def _classifier(dependency: ElementTree.Element) -> str:
    """Return the end of a jar's name that says which of an artifact's jars it is; empty for the usual one."""
    artifact = dependency.find("artifact")
    return "" if artifact is None else f"-{artifact.attrib[_CLASSIFIER]}"


def listed_digests() -> dict[str, str]:
    """Return the SHA-256 of every jar, by file name: `conf/jars.sha256`, in the format of sha256sum."""
    lines = (line.split() for line in digest_file().read_text(encoding="ascii").splitlines())
    return {name: digest for digest, name in lines}


def sha256_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def default_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the cache directory: OFFSETLAKE_JARS, else `offsetlake/jars` in the user's cache directory.

    Raises `JarError` for a user without a home folder, as in containers.
    """
    chosen = environment.get("OFFSETLAKE_JARS")
    user_cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(chosen or f"{user_cache}/offsetlake/jars").expanduser().resolve()
    except RuntimeError as error:  # of expanduser
        raise JarError.homeless(os.getuid()) from error


def ivy_file() -> Path:
    return conf_dir() / "ivy.xml"


def digest_file() -> Path:
    return conf_dir() / "jars.sha256"


def _refuse_foreign(cache: Path, directory: Path) -> None:
    """Refuse a cache, or a jar set in it, that users other than this one and root may write."""
    refuse_foreign([cache, directory, *sorted(directory.glob("*.jar"))], "jar cache")
    if cache.exists():
        refuse_replaceable(cache, "jar cache")


def _delete_left(cache: Path) -> None:
    """Delete the folders of processes that were killed while they filled the cache; others may be at work."""
    for folder in (*cache.glob(".retrieving-*"), *cache.glob(".copying-*")):
        with suppress(FileNotFoundError):  # another process was first
            if time.time() - folder.stat().st_mtime > _LEFT_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)  # the cache may be read-only


def _has_listed_names(conf: JarSet, directory: Path) -> bool:
    return {jar.name for jar in directory.glob("*.jar")} == listed_jars(conf)


def _retrieve(conf: JarSet, directory: Path, stop: threading.Event | None) -> None:
    """Let Ivy fill a temporary directory, check it against the list, and rename it in one step."""
    cache = directory.parent
    _make_cache(cache)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".retrieving-") as scratch:
        retrieved = Path(scratch) / conf
        log = cache / f"ivy-{conf}.log"
        run_ivy(conf, retrieved, cache, log, stop)
        if not _has_listed_names(conf, retrieved):
            what = f"expected {len(listed_jars(conf))} jars, found others"
            raise JarError.not_retrieved(conf, cache, what=what, ivy_says=_telling_line(log), log=log)
        if (difference := difference_to_list(conf, retrieved)) is not None:
            _forget_downloads(conf, cache)
            raise JarError.others(conf, difference, log)
        _put_in_place(conf, retrieved, directory)


def _make_cache(cache: Path) -> None:
    for folder in (*reversed(cache.parents), cache):  # `parents=True` would apply the umask
        folder.mkdir(_MODE, exist_ok=True)
    refuse_replaceable(cache, "jar cache")


def _forget_downloads(conf: JarSet, cache: Path) -> None:
    """Delete Ivy's downloads that differ from the listed jars: it would use them again."""
    digests = listed_digests()
    for name in listed_jars(conf):
        for download in (cache / "ivy").rglob(name):
            if sha256_of(download) != digests.get(name):
                download.unlink()


def _put_in_place(conf: JarSet, retrieved: Path, directory: Path) -> None:
    if directory.exists() and difference_to_list(conf, directory):  # a jar was removed, added or changed
        with suppress(FileNotFoundError):  # another process was first to replace it
            directory.rename(retrieved.with_name("damaged"))
    try:
        retrieved.rename(directory)
    except OSError:  # the directory is not empty: another process was first, with the same jars
        if difference_to_list(conf, directory):
            raise


def run_ivy(conf: JarSet, target: Path, cache: Path, log: Path, stop: threading.Event | None = None) -> None:
    """Run Ivy until it ends, writes no output for too long, or is stopped."""
    command = _ivy_command(conf, target, cache)
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, umask=0o777 & ~_MODE, process_group=0) as ivy,
    ):
        try:
            exit_code = _wait_while_log_grows(ivy, log, stop or threading.Event())
        finally:
            ivy.kill()
    if stop is not None and stop.is_set() and exit_code != 0:
        raise RetrievalStoppedError(f"retrieving the {conf} jars into {cache}: stopped before the end.")
    if exit_code is None:
        what = f"the registry did not answer for {_SILENCE_LIMIT:.0f} s"
    elif exit_code != 0:
        what = _kind_of_failure(log)
    else:
        return
    raise JarError.not_retrieved(conf, cache, what=what, ivy_says=_telling_line(log), log=log)


def _wait_while_log_grows(process: subprocess.Popen[bytes], log: Path, stop: threading.Event) -> int | None:
    """Return the exit code, or None once the log has not grown for `_SILENCE_LIMIT` seconds, or once
    stopped."""
    size, since = -1, time.monotonic()
    while time.monotonic() - since < _SILENCE_LIMIT and not stop.is_set():
        if (now := log.stat().st_size) != size:
            size, since = now, time.monotonic()
        try:
            return process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    return None


def _ivy_command(conf: JarSet, target: Path, cache: Path) -> list[str]:
    settings = os.environ.get("OFFSETLAKE_IVY_SETTINGS") or str(conf_dir() / "ivysettings.xml")
    return [
        *(str(find_java()), *_proxy_options(os.environ), "-jar", str(_ivy_jar())),
        *("-settings", settings),
        *("-ivy", str(ivy_file())),
        *("-cache", str(cache / "ivy")),
        *("-confs", conf),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _proxy_options(environment: Mapping[str, str]) -> list[str]:
    """Translate HTTPS_PROXY and NO_PROXY, which pip and curl use, but Java does not."""
    address = environment.get("HTTPS_PROXY") or environment.get("https_proxy") or ""
    if not address:
        return []
    if "://" not in address:
        address = f"http://{address}"
    if not is_address(address):
        raise MisuseError(f"HTTPS_PROXY: expected {AN_ADDRESS}, found {refused_text(address)}.")
    proxy = urlsplit(without_user(address)[0])
    options = [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"]
    direct = _patterns_of(environment.get("NO_PROXY") or environment.get("no_proxy") or "")
    return [*options, f"-Dhttp.nonProxyHosts={direct}"] if direct else options  # also of https


def _patterns_of(no_proxy: str) -> str:
    """Return Java's patterns for the hosts of NO_PROXY, each of which stands for its subdomains, too. Java's
    have no ports.

    >>> _patterns_of("example.com, .internal:8080"), _patterns_of("*")
    ('example.com|*.example.com|internal|*.internal', '*')
    """
    found = (re.sub(r"^([^:]+|\[.*\]):\d+$", r"\1", one.strip()) for one in no_proxy.split(","))
    hosts = [host if host == "*" else host.removeprefix("*").removeprefix(".") for host in found]
    return "|".join(host if host == "*" else f"{host}|*.{host}" for host in hosts if host)


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")  # importing it would take half a second
    if pyspark is None or pyspark.origin is None:
        raise JarError.no_ivy("no package pyspark")
    jars = Path(pyspark.origin).parent / "jars"
    ivy = next(jars.glob("ivy-*.jar"), None)
    if ivy is None:
        raise JarError.no_ivy(f"none in {jars}")
    return ivy


def _kind_of_failure(log: Path) -> str:
    if "Server access error" in log.read_text(errors="replace"):
        return "no registry could be reached"
    return "the registry did not give every jar"


def _telling_line(log: Path) -> str:
    text = log.read_text(errors="replace")
    found = (match[0].strip() for pattern in _EXPLAINING if (match := pattern.search(text)))
    return next(found, "nothing that explains it")
