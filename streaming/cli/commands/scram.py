"""The command that salts a password, for clients that sign in by SCRAM."""

import sys

import click


@click.command()
@click.option(
    "--mechanism",
    type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    default="SCRAM-SHA-512",
    show_default=True,
    help="How the client signs in.",
)
def scram(mechanism: str) -> None:
    """Salt a password, for the credential of a principal that signs in by SCRAM.

    The command asks for the password, or reads one line from standard input. The output alone is not
    enough to sign in, but an attacker can use it to guess the password: protect the output.

    \b
      offsetlake scram
      pass show kafka/billing | offsetlake scram
    """
    import secrets

    from streaming.settings.scram_credentials import NEW_ITERATIONS, salted

    salt = secrets.token_bytes(_SALT_BYTES)
    print(salted(_password(), mechanism, salt=salt, iterations=NEW_ITERATIONS))


_SALT_BYTES = 16


def _password() -> str:
    from streaming.model.errors import MisuseError

    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    line = sys.stdin.buffer.readline().rstrip(b"\r\n")
    try:
        if text := line.decode():
            return text
    except UnicodeDecodeError:
        raise MisuseError(
            "scram: expected a password in UTF-8 on standard input, found other bytes."
        ) from None
    raise MisuseError("scram: expected a password on standard input, found none.")
