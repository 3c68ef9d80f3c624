"""What `make audit` finds, and that it says what it could not check."""

import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import audit
import pytest
from audit import NotCheckedError, is_allowed, licence_of, of_files, of_lock, of_report

LOCK = """\
a==1.0 \\
    --hash=sha256:00 \\
    --hash=sha256:01
    # via b
b==2.0 ; python_full_version < '3' \\
    --hash=sha256:00
b==3.0 ; python_full_version >= '3' \\
    --hash=sha256:00
"""


class TestLock:
    def test_a_lock_that_fits_is_all_right(self) -> None:
        assert list(of_lock(LOCK, ["a>=1", "b"], {"a": "1.0", "b": "3.0", "offsetlake": "0.1.0"})) == []

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (LOCK.replace("a==1.0", "a>=1.0"), "a: expected one version"),
            (LOCK.replace("    --hash=sha256:00 \\\n    --hash=sha256:01", "   "), "a: expected one version"),
            (LOCK.replace("a==1.0", "a==1.*"), "a: expected one version"),
        ],
    )
    def test_each_line_has_one_version_and_a_sum(self, text: str, said: str) -> None:
        assert text != LOCK
        (line,) = of_lock(text, [], {})
        assert line.startswith(said)

    def test_what_is_required_or_installed_beside_it_is_found(self) -> None:
        installed = {"a": "1.1", "b": "3.0.0", "c": "1"}
        assert [line.partition(": expected")[0] for line in of_lock(LOCK, ["a>=2", "d"], installed)] == [
            "a>=2",
            "d",
            "a 1.1",
            "c 1",
        ]

    def test_ours_fits_the_project(self) -> None:
        project = tomllib.loads((audit.ROOT / "pyproject.toml").read_text())
        assert list(of_lock(audit.LOCK.read_text(), project["project"]["dependencies"], {})) == []
        assert list(of_lock(audit.TOOL_LOCK.read_text(), ["pip-audit"], {})) == []


class TestLicences:
    @pytest.mark.parametrize(
        ("fields", "licence"),
        [
            ([("License-Expression", "MIT OR Apache-2.0"), ("License", "GPL")], "MIT OR Apache-2.0"),
            ([("Classifier", "License :: OSI Approved"), ("License", "MIT")], "MIT"),
            ([("Classifier", "License :: OSI Approved :: BSD License")], "BSD-3-Clause"),
            ([("License", "a text of our own")], ""),
            ([], ""),
        ],
    )
    def test_it_is_the_expression_or_else_what_is_known(
        self, fields: list[tuple[str, str]], licence: str
    ) -> None:
        about = Message()
        for name, value in fields:
            about[name] = value
        assert licence_of(about) == licence

    @pytest.mark.parametrize("expression", ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "LGPL-2.1-or-later"])
    def test_others_are_not_allowed(self, expression: str) -> None:
        assert not is_allowed(expression)

    @pytest.mark.parametrize(
        ("name", "text", "says"),
        [
            ("META-INF/LICENSE.txt", "Apache License\n  Version 2.0, January 2004", True),
            ("META-INF/maven/a/b/pom.xml", "<url>https://www.apache.org/licenses/LICENSE-2.0</url>", True),
            ("META-INF/LICENSE", "GNU General Public License", False),
            ("org/x/Some.class", "apache.org/licenses/LICENSE-2.0", False),
        ],
    )
    def test_a_jar_says_it_in_its_licence_or_pom(
        self, tmp_path: Path, name: str, text: str, says: bool
    ) -> None:
        with zipfile.ZipFile(tmp_path / "a.jar", "w") as jar:
            jar.writestr(name, text)
        assert audit.says_apache(tmp_path / "a.jar") == says


class TestFiles:
    def test_ours_are_ours(self) -> None:
        assert list(audit.files()) == []

    def test_a_file_of_others_is_found(self) -> None:
        own = {name: (audit.ROOT / name).read_bytes() for name in audit.VENDORED}
        others = {
            "a.jar": b"PK\0",
            "b.js": b"/*! @license */",
            "c.py": b"x = 1\n# Copyright (c) 2020 Somebody",
            "x/vendor/d.go": b"",
        }
        contents = {**own, "ours.py": b"copyright is no notice", **others}
        assert [line.partition(":")[0] for line in of_files(contents)] == [*others]

    @pytest.mark.parametrize("contents", [{}, {"LICENSE": b"another"}])
    def test_one_that_was_changed_or_is_gone_is_found(self, contents: dict[str, bytes]) -> None:
        lines = list(of_files(contents))
        assert lines[0].startswith("LICENSE: expected SHA-256 ")
        assert len(lines) == len(audit.VENDORED)


KNOWN = {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
GOOD = {"name": "b", "version": "1", "vulns": []}
SKIPPED = {"name": "c", "skip_reason": "not found"}


class TestVulnerabilities:
    def test_each_is_a_line(self) -> None:
        assert of_report({"dependencies": [KNOWN, GOOD, SKIPPED]}) == ["a 1: PYSEC-1, fixed in: 2"]
        assert of_report({"dependencies": [GOOD]}) == []

    def test_packages_without_data_are_not_taken_for_good(self) -> None:
        with pytest.raises(NotCheckedError, match=r"of 1 of 2 packages there was no data, such as c"):
            of_report({"dependencies": [GOOD, SKIPPED]})

    def test_a_report_of_nothing_is_not_taken_for_good(self) -> None:
        with pytest.raises(NotCheckedError, match=r"no package is in the report"):
            of_report({"dependencies": []})

    def test_without_a_network_it_says_so(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(audit.sys, "prefix", str(tmp_path))
        monkeypatch.setenv("UV_OFFLINE", "1")
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
        said = r"^installing pip-audit and twine \(offline\?\): .*unsatisfiable"
        with pytest.raises(NotCheckedError, match=said):
            list(audit.vulnerabilities())
        assert not (tmp_path / "audit" / "made-of.lock").exists()


class TestVerdict:
    @staticmethod
    def refuse() -> list[str]:
        raise NotCheckedError("no network")

    def test_nothing_found_is_exit_code_0(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(audit, "CHECKS", {"one": list})
        assert audit.main() == 0
        assert capsys.readouterr().out == "one: nothing found\naudit: nothing found\n"

    def test_what_was_not_checked_is_named_and_is_exit_code_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(audit, "CHECKS", {"one": self.refuse, "two": list})
        assert audit.main() == 1
        out = capsys.readouterr().out
        assert out.startswith("one: NOT CHECKED: no network\ntwo: nothing found\n")
        assert out.endswith("audit: INCOMPLETE: not checked: one\n")

    def test_what_was_found_is_listed_and_is_exit_code_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(audit, "CHECKS", {"one": lambda: ["a", "b"], "two": self.refuse})
        assert audit.main() == 1
        out = capsys.readouterr().out
        assert out.startswith("one: 2 found\n  a\n  b\ntwo: NOT CHECKED")
        assert out.endswith("audit: FAILED: 2 found\n")
