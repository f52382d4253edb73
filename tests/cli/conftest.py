"""The real command in a folder and a home of its own: as a process, or quicker in this one."""

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from portico.cli.main import main
from portico.config.inherited_environment import NETWORK_VARIABLES
from portico.usage import recorder

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 240


def command() -> list[str]:
    """How the command is started: the installed script, or the same thing by hand."""
    script = Path(sys.executable).with_name("portico.exe" if sys.platform == "win32" else "portico")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-c", "from portico.cli.main import main; raise SystemExit(main())"]


def interruptible_command() -> list[str]:
    """The command with Ctrl+C as in a terminal: tests in the background ignore it, and so do their
    children."""
    lines = (
        "import signal, sys",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        "from portico.cli.main import main",
        "sys.exit(main())",
    )
    return [sys.executable, "-c", "; ".join(lines)]


@dataclass(frozen=True)
class CommandResult:
    """What a command that has ended left."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """stdout as the one JSON document it must be."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Home:
    """A user who has nothing yet."""

    folder: Path
    captured: pytest.CaptureFixture[str]

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(
                ("PORTICO_", "XDG_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
            )
            and name not in NETWORK_VARIABLES
        }
        home = {
            "HOME": str(self.folder),
            "USERPROFILE": str(self.folder),
            "APPDATA": str(self.folder),
        }
        return {
            **kept,
            **home,
            "PORTICO_DATA_DIR": str(self.folder / "data"),
            "PYTHONPATH": str(REPOSITORY),
        }

    def write(self, config: dict[str, Any], name: str = "portico.yaml") -> Path:
        path = self.folder / name
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def spawn(
        self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> CommandResult:
        """Run the command as a process, as a user does."""
        done = subprocess.run(
            [*command(), *arguments],
            input=stdin.encode(),
            capture_output=True,
            cwd=self.folder,
            env={**self.environment, **(env or {})},
            timeout=TIMEOUT_S,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_in_terminal(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Run the command on a pseudo-terminal: its exit code and what the terminal was sent."""
        import pty

        ours, theirs = pty.openpty()
        environment = {**self.environment, "TERM": "xterm-256color", "COLUMNS": "80", **(env or {})}
        process = subprocess.Popen(
            [*command(), *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.folder,
            env=environment,
        )
        os.close(theirs)
        sent = b""
        with (
            os.fdopen(ours, "rb", 0) as terminal,
            contextlib.suppress(OSError),
        ):  # Linux says the end as an error
            while chunk := terminal.read(65_536):
                sent += chunk
        return process.wait(TIMEOUT_S), sent.decode()

    def run(
        self, *arguments: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> CommandResult:
        """Run the command in this process: the same, without the second that Python takes to
        start."""
        self.captured.readouterr()
        with pytest.MonkeyPatch.context() as patch, own_logging():
            for name in set(os.environ) - set(self.environment):
                patch.delenv(name)
            for name, value in {**self.environment, **(env or {})}.items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            # What is not written within three seconds is lost; a busy machine may need longer.
            patch.setattr(recorder, "CLOSE_TIMEOUT_S", float(TIMEOUT_S))
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            code = main(arguments)
        written = self.captured.readouterr()
        return CommandResult(code, written.out, written.err)


@contextlib.contextmanager
def own_logging() -> Generator[None]:
    """What a command sets up for its own log goes with it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:], root.level = handlers, level
        for name in ("portico.upstream", "portico.catalog"):
            logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def home(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Home:
    return Home(tmp_path, capfd)


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    """Starts a command that lasts; whatever is left of it at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        *arguments: str, env: dict[str, str] | None = None, interruptible: bool = False
    ) -> "subprocess.Popen[bytes]":
        program = interruptible_command() if interruptible else command()
        process = subprocess.Popen(
            [*program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=home.folder,
            env={**home.environment, **(env or {})},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT_S)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


EVERYTHING: dict[str, Any] = {
    "command": sys.executable,
    "args": ["-m", "tests.fixtures.everything", "--stdio"],
    "cwd": str(REPOSITORY),
    "env": {"PYTHONPATH": str(REPOSITORY)},
}
"""A real server that is a child process."""
