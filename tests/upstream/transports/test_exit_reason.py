"""Why a program ended: its signal by name, and the line of its output that says it."""

from pathlib import Path

import pytest

from portico.upstream.transports.process import describe_exit_code, pick_telling_line

OUTPUTS = Path(__file__).parents[2] / "fixtures" / "stderr_outputs.txt"
"""What real programs wrote to stderr when they failed: `=== name`, `>>> the line`, the output."""


def read_outputs() -> list[tuple[str, str, list[str]]]:
    found: list[tuple[str, str, list[str]]] = []
    for part in OUTPUTS.read_text().split("=== ")[1:]:
        name, line, *output = part.splitlines()
        found.append((name, line.removeprefix(">>> "), output))
    return found


@pytest.mark.parametrize(
    ("line", "output"),
    [(line, output) for _, line, output in read_outputs()],
    ids=[name for name, *_ in read_outputs()],
)
def test_the_error_is_quoted_and_not_the_stack_or_the_noise_around_it(line: str, output: list[str]):
    assert line in pick_telling_line(output)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            [
                "starting",
                "Error: getaddrinfo ENOTFOUND example.invalid",
                "    at lookup (node:1:2)",
                "  errno: -3008",
                "}",
            ],
            "Error: getaddrinfo ENOTFOUND example.invalid",
        ),
        (
            ["Traceback (most recent call last):", "ValueError: no token", "bye bye"],
            "ValueError: no token",
        ),
        (["permission denied while connecting", "done"], "permission denied while connecting"),
        (
            ["Error: EXAMPLE_API_KEY is required", "{", "  code: 1", "}"],
            "Error: EXAMPLE_API_KEY is required",
        ),
        (["Enter your API key: "], "Enter your API key:"),
        (["listening", "ready", "}"], "ready"),
        (["}", "12:00", ""], ""),
        ([], ""),
    ],
)
def test_the_line_that_tells_most_is_quoted(said: list[str], told: str):
    assert pick_telling_line(said) == told


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, "exited with code 1"),
        (-9, "was ended by SIGKILL: killed, perhaps because memory ran out"),
        (-11, "was ended by SIGSEGV"),
        (-200, "was ended by the signal 200"),
        (137, "exited with code 137 (SIGKILL: killed, perhaps because memory ran out)"),
        (143, "exited with code 143 (SIGTERM)"),
        (255, "exited with code 255"),
    ],
)
def test_signals_are_called_by_their_names(code: int, text: str):
    assert describe_exit_code(code) == text
