"""The command that salts a password: what it prints is the credential of that password, and of no other."""

import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from command_process import COMMAND
from conftest import Ended

from streaming.settings.scram_credentials import (
    FEWEST_ITERATIONS,
    HASHES,
    NEW_ITERATIONS,
    read_credential,
    salted,
)

Run = Callable[..., Ended]


@pytest.fixture
def run(offsetlake: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs the command with a password on standard input."""

    def salt(password: bytes, *arguments: str) -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(password)))
        ended: Ended = offsetlake("scram", *arguments)
        return ended

    return salt


@pytest.mark.parametrize("mechanism", sorted(HASHES))
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_it_prints_the_credential_of_a_line(run: Run, mechanism: str, end: bytes) -> None:
    ended = run("pass wörd".encode() + end, "--mechanism", mechanism)
    assert (ended.code, ended.err) == (0, "")
    found = read_credential(ended.out.removesuffix("\n"), mechanism, where="x")
    assert found == salted("pass wörd", mechanism, salt=found.salt, iterations=found.iterations)
    assert found.iterations == NEW_ITERATIONS >= FEWEST_ITERATIONS
    assert "rd" not in ended.out.split("salt=")[0]


def test_each_has_a_salt_of_its_own() -> None:
    salts = set()
    for _ in range(2):
        ended = subprocess.run([*COMMAND, "scram"], input=b"same\n", capture_output=True, check=True)
        text = ended.stdout.decode().removesuffix("\n")
        found = read_credential(text, "SCRAM-SHA-512", where="x")
        assert found == salted("same", "SCRAM-SHA-512", salt=found.salt, iterations=found.iterations)
        assert ended.stderr == b""
        salts.add(found.salt)
    assert len(salts) == 2


@pytest.mark.parametrize("password", [b"", b"\n", b"\xff\n"])
def test_no_password_and_other_bytes_are_refused(run: Run, password: bytes) -> None:
    ended = run(password)
    assert ended.code == 2
    assert "expected a password" in ended.err
    assert ended.out == ""


def test_the_keys_are_those_of_rfc_7677() -> None:
    """Its example: the proof of the client and the signature of the server follow from these keys."""
    import hashlib
    import hmac
    from base64 import b64decode, b64encode

    found = salted("pencil", "SCRAM-SHA-256", salt=b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    signed = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    signature = hmac.digest(found.server_key, signed.encode(), "sha256")
    assert b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client_key = bytes(
        a ^ b for a, b in zip(proof, hmac.digest(found.stored_key, signed.encode(), "sha256"), strict=True)
    )
    assert hashlib.sha256(client_key).digest() == found.stored_key
