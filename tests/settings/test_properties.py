"""Client settings in a properties file are read as Java reads them."""

import subprocess
from pathlib import Path

import pytest

from streaming.jvm.java import JavaError, find_java
from streaming.model.errors import MisuseError
from streaming.settings.properties import read_properties

PROPERTIES: dict[str, dict[str, str]] = {
    "": {},
    "a=b": {"a": "b"},
    "a:b": {"a": "b"},
    "a b": {"a": "b"},
    "a\tb": {"a": "b"},
    "a = b": {"a": "b"},
    "a  :  b": {"a": "b"},
    " \t\fa=b": {"a": "b"},
    "a=b  ": {"a": "b  "},
    "a==b": {"a": "=b"},
    "a: =b": {"a": "=b"},
    "a=b=c:d e": {"a": "b=c:d e"},
    "a": {"a": ""},
    "a=": {"a": ""},
    "=b": {"": "b"},
    "a=1\na=2": {"a": "2"},
    "a=1\r\nb=2\rc=3\n": {"a": "1", "b": "2", "c": "3"},
    "# comment\n ! comment\n\n  \na=b": {"a": "b"},
    "a=b # no comment": {"a": "b # no comment"},
    "# continues not \\\na=b": {"a": "b"},
    "a=b\\\n   c": {"a": "bc"},
    "a=b\\\r\n\tc\\\n#d": {"a": "bc#d"},
    "a=b\\\\\nc=d": {"a": "b\\", "c": "d"},
    "a=b\\\\\\\nc=d": {"a": "b\\c=d"},
    "a=b\\\n\nc=d": {"a": "b", "c": "d"},
    "\\\n# a=b": {},
    "a=b\\": {"a": "b"},
    "a\\ b=c": {"a b": "c"},
    "a\\=b\\:c=d": {"a=b:c": "d"},
    "a=\\t\\n\\r\\f\\q\\\\": {"a": "\t\n\r\fq\\"},
    "a=C:\\temp": {"a": "C:\temp"},
    "a=\\u00e9\\u20AC": {"a": "é€"},
    "a=\\ud83d\\udc22": {"a": "🐢"},
    "a=caf\u00e9": {"a": "caf\u00e9"},
    "a=b\u0085c\u001cd": {"a": "b\u0085c\u001cd"},
    "\u00a0a=b": {"\u00a0a": "b"},
    "a=\"b\" 'c'": {"a": "\"b\" 'c'"},
}

PROPERTIES_IN_JAVA = """
import java.io.*; import java.nio.file.*; import java.util.*;
class Read { public static void main(String[] files) throws Exception {
    for (String file : files) {
        Properties read = new Properties();
        try (InputStream in = Files.newInputStream(Path.of(file))) { read.load(in); }
        StringBuilder line = new StringBuilder();
        for (String name : read.stringPropertyNames())
            for (String text : List.of(name, read.getProperty(name)))
                line.append(HexFormat.of().formatHex(text.getBytes("UTF-8"))).append(",");
        System.out.println(line);
    } } }
"""


@pytest.mark.parametrize(("text", "expected"), PROPERTIES.items(), ids=map(repr, PROPERTIES))
def test_properties_are_read(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(text.encode("latin-1"))
    assert read_properties(file) == expected


def test_java_reads_the_same_properties(tmp_path: Path) -> None:
    try:
        java = find_java()
    except JavaError as error:
        pytest.skip(str(error))
    program = tmp_path / "Read.java"
    program.write_text(PROPERTIES_IN_JAVA)
    files = [tmp_path / f"{number}.properties" for number in range(len(PROPERTIES))]
    for file, text in zip(files, PROPERTIES, strict=True):
        file.write_bytes(text.encode("latin-1"))
    ran = subprocess.run([java, program, *files], capture_output=True, text=True, check=False)
    if "jdk.compiler" in ran.stderr:
        pytest.skip("this Java has no compiler")
    texts = [
        [bytes.fromhex(text).decode() for text in line.split(",")[:-1]] for line in ran.stdout.splitlines()
    ]
    read = [dict(zip(line[::2], line[1::2], strict=True)) for line in texts]
    assert read == list(PROPERTIES.values())


def test_broken_escape_is_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(r'sasl.jaas.config=... password="DOMAIN\user";')
    with pytest.raises(
        MisuseError, match=r"sasl\.jaas\.config: expected four hex digits after \\u"
    ) as raised:
        read_properties(file)
    assert str(file) in str(raised.value)
    assert "DOMAIN" not in str(raised.value), "part of a password"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"client settings .*none: cannot be read \(No such file"):
        read_properties(tmp_path / "none")
