"""The wheel, installed for readers: every query and `serve`, without the libraries of the job."""

import json
import subprocess
import urllib.request
import zipfile
from pathlib import Path

import pytest
from certificates import CertificateAuthority
from http_program import running_program
from installed import (
    PYPROJECT,
    ROOT,
    build_wheel,
    command_in,
    install_for_readers,
    python_in,
    with_requirements,
)
from listening import Client
from served_clusters import fill
from test_packages import COMMANDS

from streaming.cli.entry import other_than_ours
from streaming.cli.main import cli
from streaming.demo.local_broker import free_ports
from streaming.tables.tables import Tables

OF_THE_JOB = {"run", "rebuild", "demo", "check", "jars"}
FOREIGN = "raise RuntimeError('loaded')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation, in whose path are spaces and more."""
    folder = tmp_path_factory.mktemp("with spaces, ünïcode") / "site"
    install_for_readers(wheel, folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A current folder that has packages of the same names."""
    for name in ("streaming", "decoders"):
        (tmp_path / "here" / name).mkdir(parents=True)
        (tmp_path / "here" / name / "__init__.py").write_text(FOREIGN)
    return tmp_path / "here"


def test_the_wheel_has_all_of_ours_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard", "streaming", "decoders", "conf"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        pytest.skip(f"no list of the files of this checkout: {listed.stderr}")
    expected = {
        f"streaming/{file}" if file.startswith("conf/") else file
        for file in listed.stdout.split("\0")
        if file and not file.startswith(("conf/deploy/", "conf/mkdocs.yml"))
    }
    assert found == expected - {"streaming/cli/entry.py"} | {"offsetlake.py"}


def test_readers_need_a_part_of_what_the_job_needs() -> None:
    assert set(PYPROJECT["dependency-groups"]["serve"]) < set(PYPROJECT["project"]["dependencies"])
    names = {one.name for one in with_requirements(PYPROJECT["dependency-groups"]["serve"])}
    assert names.isdisjoint({"pyspark", "py4j", "pandas", "protobuf"})


EACH = """
import json, sys
codes = {}
for words in json.loads(sys.stdin.read()):
    sys.argv = ["offsetlake", *words]
    from streaming.cli.main import main
    try:
        main()
    except SystemExit as ended:
        codes[" ".join(words[:1])] = ended.code
print(json.dumps(codes), file=sys.stderr)
"""


def test_every_query_is_answered(site: Path, folder: Path, tables: Tables, tmp_path: Path) -> None:
    fill(tables)
    tables.fold()
    (tmp_path / "records.jsonl").write_text('{"key": "0002000167", "value": null}\n')
    (tmp_path / "settings.toml").write_text('expiry.retention = "7d"\n')
    commands = [
        [name, *arguments.format(root=tables.root, files=tmp_path).split()]
        for name, arguments in COMMANDS.items()
    ]
    assert COMMANDS.keys() | OF_THE_JOB | {"serve", "scram"} == cli.commands.keys()
    ran = subprocess.run(
        [*python_in(site), "-c", EACH],
        cwd=folder,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
    )
    *said, codes = ran.stderr.splitlines()
    assert json.loads(codes) == dict.fromkeys(COMMANDS, 0), said


def test_serve_serves(site: Path, folder: Path, tables: Tables, tmp_path: Path) -> None:
    fill(tables)
    http, kafka = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [*command_in(site), "serve", "--http", http, "--kafka", kafka, "--table-root", tables.root]
    with running_program(command, f"http://{http}/readyz", log=tmp_path / "log", cwd=folder):
        for path in ("metrics", "", "groups", "groups.csv", "groups.json", "static/style.css"):
            assert urllib.request.urlopen(f"http://{http}/{path}").status == 200
        with Client(kafka) as client:
            [group] = client.ask(16, 4, {"states_filter": []})["groups"]
    assert "g" in group.values()


SIGNING_IN = """
import sys
import jwt
from streaming.serve.process.security import read_security
from streaming.settings.reading import read_settings

serve = read_settings(options={"serve.kafka": [
    {"listen": "127.0.0.1:0", "security_protocol": "SASL_SSL", "certificate_file": sys.argv[1],
     "broker": {"sasl.oauthbearer.jwks.endpoint.url": "https://idp.example/keys"}},
], "serve.principals": [{"name": "a", "mechanism": "OAUTHBEARER", "groups": ["*"]}]}).serve
assert read_security(serve.kafka[0], serve.principals).tls is not None
"""


def test_clients_can_sign_in(site: Path, folder: Path, tmp_path: Path) -> None:
    certificate = CertificateAuthority().write_pem(tmp_path / "server.pem", "a listener of a test")
    ran = subprocess.run(
        [*python_in(site), "-c", SIGNING_IN, str(certificate)], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("command", sorted(OF_THE_JOB - {"check", "jars"}))
def test_commands_of_the_job_say_what_is_missing(site: Path, folder: Path, command: str) -> None:
    ran = subprocess.run([*command_in(site), command], cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 1
    assert f"offsetlake: {command}: expected the Python module py4j, found none" in ran.stderr
    assert "Install offsetlake with all its dependencies" in ran.stderr


def test_pandas_is_asked_for_by_name(site: Path, tables: Tables) -> None:
    program = (
        "import sys; from streaming import Tables, OffsetQueries; "
        "OffsetQueries(Tables(sys.argv[1])).list_groups().to_pandas()"
    )
    fill(tables)
    ran = subprocess.run(
        [*python_in(site), "-c", program, tables.root], capture_output=True, text=True, cwd=site
    )
    *_, last = ran.stderr.splitlines()
    assert "MissingLibraryError: to_pandas: expected the Python module pandas, found none" in last


@pytest.mark.parametrize("package", ["streaming", "decoders"])
def test_packages_of_others_are_refused_and_not_loaded(site: Path, folder: Path, package: str) -> None:
    theirs = folder / package
    other = {"streaming": "decoders", "decoders": "streaming"}[package]
    (folder / other / "__init__.py").unlink()
    (folder / other).rmdir()
    ran = subprocess.run(command_in(folder, site), capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == (
        f"error: expected offsetlake's own Python package {package!r}, found {theirs}/__init__.py: install "
        "offsetlake in an environment of its own (pipx or uv tool), without PYTHONPATH.\n"
    )


def test_what_another_project_left_of_a_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert other_than_ours("no_such_package") == "none"
    (tmp_path / "half_removed").mkdir()
    assert other_than_ours("half_removed") == f"folders without __init__.py ({tmp_path}/half_removed)"


def test_the_version_stands_in_one_place(site: Path) -> None:
    ran = subprocess.run([*command_in(site), "--version"], capture_output=True, text=True)
    assert ran.stdout == f"offsetlake, version {PYPROJECT['project']['version']}\n"
