"""Files of a git repository at one commit, read without a work tree."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self


class Snapshot:
    """One commit of a bare git directory, read through a single git process."""

    def __init__(self, directory: Path, commit: str) -> None:
        self._git = ["git", "-C", str(directory)]
        self._commit = commit
        self.paths = (
            self._output("ls-tree", "-r", "-z", "--name-only", commit).rstrip("\0").split("\0")
        )
        self._known = set(self.paths)
        self._kept: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._batch = subprocess.Popen(
            [*self._git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._batch.stdin
        assert self._batch.stdout
        self._batch.stdin.close()
        self._batch.wait()
        self._batch.stdout.close()

    def text(self, path: str, *, keep: bool = False) -> str | None:
        """The file's text, or None where the commit has no such file; `keep` remembers it."""
        if path not in self._known:
            return None
        if path in self._kept:
            return self._kept[path]
        raw = self._blob(path)
        if raw is None:
            return None
        codec = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        text = raw.decode(codec, errors="replace")
        if keep:
            self._kept[path] = text
        return text

    def _blob(self, path: str) -> bytes | None:
        assert self._batch.stdin
        assert self._batch.stdout
        self._batch.stdin.write(f"{self._commit}:{path}\n".encode())
        self._batch.stdin.flush()
        header = self._batch.stdout.readline().split()
        if len(header) != 3 or header[1] != b"blob":
            return None
        raw = self._batch.stdout.read(int(header[2]))
        self._batch.stdout.read(1)
        return raw

    def _output(self, *arguments: str) -> str:
        return subprocess.run(
            [*self._git, *arguments], check=True, capture_output=True
        ).stdout.decode()


def git_directory(repositories: Path, name: str) -> Path | None:
    """The git directory of `owner/name` somewhere beneath the folder of repositories."""
    stem = name.replace("/", "+")
    for start in (repositories / stem, repositories / f"{stem}.git"):
        for candidate in (start, *sorted(start.glob("*")), *sorted(start.glob("*/*"))):
            if (candidate / "HEAD").is_file() and (candidate / "objects").is_dir():
                return candidate
    return None


def holds(directory: Path, commit: str) -> bool:
    """Decide whether a git directory has a commit."""
    found = subprocess.run(
        ["git", "-C", str(directory), "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True
    )
    return found.returncode == 0
