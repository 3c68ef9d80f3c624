"""What went wrong in the JVM or in a Python worker, in one line."""

import pytest

from streaming.spark.java_errors import error_line

TRACEBACK = (
    "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'streaming'\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("java.io.IOException: No space left\n  at ...", "IOException: No space left."),
        (f"org.apache.spark.PythonException: {TRACEBACK}", "PythonException: ModuleNotFoundError: No module"),
        (
            f"org.apache.spark.RunnerException: [FAILED] Cause: {TRACEBACK}",
            "RunnerException: ModuleNotFoundError",
        ),
        (
            f"An exception was thrown from the Python worker:\n{TRACEBACK}a.b.OwnError: expected room.\n",
            "OwnError: expected room.",
        ),
        ("something else", "Exception: something else."),
    ],
)
def test_the_telling_line_is_reported(text: str, line: str) -> None:
    assert error_line(Exception(text)).startswith(line)


def test_a_line_of_thousands_of_characters_is_cut() -> None:
    line = error_line(Exception(f"x.LoginException: {'many sources, ' * 1_000}"))
    assert line.startswith("LoginException: many sources, ")
    assert line.endswith("... Check sasl.jaas.config (--command-config).")
    assert len(line) < 1_100
