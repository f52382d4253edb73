"""The new user: a home, a project, a shell with variables, and `portico` on the command line."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.acceptance.client_files import ClientFiles
from tests.acceptance.fleet import Raw

PORTICO = Path(sys.executable).with_name("portico")
COMMAND_S = 120.0


@dataclass(frozen=True)
class Ran:
    """How a program ended."""

    code: int
    out: str
    err: str
    seconds: float

    def describe(self) -> str:
        """Code and last words."""
        words = " ".join((self.err.strip() or self.out.strip()).split())
        return f"exit {self.code} after {self.seconds:.1f} s: {words[-400:]}"


@dataclass(frozen=True)
class User:
    """Who plays."""

    files: ClientFiles
    env: Mapping[str, str]

    def portico(self, *arguments: str, limit_s: float = COMMAND_S, cwd: Path | None = None) -> Ran:
        """Run `portico` at home, with nobody to answer its questions."""
        folder = cwd or self.files.home
        return run_program((str(PORTICO), *arguments), self.env, folder, limit_s)

    @property
    def config(self) -> Path:
        """Where `portico adopt` writes this user's own configuration."""
        return self.files.home / ".config" / "portico" / "portico.yaml"

    def read_config(self) -> Raw:
        """The configuration as it is on disk."""
        return yaml.safe_load(self.config.read_text("utf-8"))


def run_program(command: Sequence[str], env: Mapping[str, str], cwd: Path, limit_s: float) -> Ran:
    """Run a program to its end; one that is not done in time is killed and has code 124."""
    began = time.monotonic()
    try:
        ended = subprocess.run(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode("utf-8", "replace")
        return Ran(124, said, f"not done after {limit_s:g} s", limit_s)
    out = ended.stdout.decode("utf-8", "replace")
    err = ended.stderr.decode("utf-8", "replace")
    return Ran(ended.returncode, out, err, time.monotonic() - began)
