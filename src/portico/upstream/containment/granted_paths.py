"""Files that a contained server may read without more ado: programs, and what its entry names.

Secrets of the user, of other servers and of Portico are in none of them. A folder that would
contain the user's home or the data folder is never granted by a guess.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from portico.config.inherited_environment import CERTIFICATE_VARIABLES

_SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts"),
    *("gai.conf", "group", "host.conf", "hostname", "hosts", "java", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "localtime", "locale.alias", "locale.conf", "lsb-release", "magic"),
    *("mime.types", "networks", "nsswitch.conf", "openssl", "os-release", "passwd", "pki"),
    *("protocols", "resolv.conf", "services", "ssl", "static", "terminfo", "timezone"),
)
"""Of /etc; there is much else in it that is nobody's business."""
SYSTEM_PATHS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store", "/run/current-system/sw", "/snap"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
    "/sys/kernel/mm/transparent_hugepage",
    *(f"/etc/{name}" for name in _SETTINGS),
)
USER_PROGRAMS = (
    *(".asdf", ".bun/bin", ".bun/install/global", ".cargo/bin", ".deno/bin", ".fnm", ".jbang"),
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/fnm", ".local/share/mise"),
    *(".local/share/pipx", ".local/share/pnpm", ".local/share/uv/python"),
    *(".local/share/virtualenvs", ".n", ".nodenv", ".npm-global", ".nvm", ".pyenv", ".rbenv"),
    *(".rustup", ".sdkman", ".volta", "anaconda3", "go/bin", "miniconda3", "miniforge3"),
)
"""Folders of the user's home that hold programs."""
_MAX_STEPS = 8
_FIRST_LINE_BYTES = 256
_PROJECT_FILES = ("package.json", "pyproject.toml", "setup.py", "requirements.txt")
_SOURCES = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".php", ".pl", ".sh", ".jar")
_MAX_PROJECT_DEPTH = 6


@dataclass
class PathFinder:
    """Finds what the programs and the entry of one server need."""

    user_home: str
    """No guess may contain it."""
    hidden: tuple[str, ...]
    """Data folders: no guess may contain them, or be in them."""
    writable: tuple[str, ...]
    """Folders that the server can change: what lies there says nothing of what it may read."""
    found: list[str] = field(default_factory=list[str])

    def add_program(self, program: str) -> None:
        """Add a program, what it links to, its interpreter, and the installations around them."""
        waiting = [program]
        seen: set[str] = set()
        while waiting and len(seen) < _MAX_STEPS:
            path = os.path.normpath(waiting.pop())
            if path in seen or self._is_changeable(path):
                continue
            seen.add(path)
            self._add(path)
            self._add_installation(path)
            waiting += (one for one in self._follow(path) if os.path.isabs(one))

    def add_named(self, words: Iterable[str], folder: str) -> None:
        """Add files and folders that arguments or variables name; of a source, its project."""
        for word in words:
            _, is_option, value = word.partition("=")
            for text in (word, value) if is_option else (word,):
                if not text or text.startswith("-") or "\0" in text or "://" in text:
                    continue
                # A bare word is a file only in the folder that the entry names.
                if not folder and not os.path.isabs(text):
                    continue
                path = os.path.normpath(os.path.join(folder, text))
                if not os.path.exists(path) or self._is_changeable(path):
                    continue
                self._add(path)
                if path.endswith(_SOURCES):
                    self._add_project(path)

    def add_certificates(self, environ: Mapping[str, str]) -> None:
        paths = (environ.get(name, "") for name in CERTIFICATE_VARIABLES)
        self.add_named((path for path in paths if os.path.isabs(path)), "")

    def _follow(self, path: str) -> Iterable[str]:
        real = os.path.realpath(path)
        if real != path:
            yield real
        prefix = os.path.dirname(os.path.dirname(path))
        if home := _read_setting(os.path.join(prefix, "pyvenv.cfg"), "home"):
            # Its link to the interpreter is followed by name.
            yield os.path.join(home, "python3")
        if interpreter := _read_interpreter(real):
            yield interpreter

    def _add_installation(self, path: str) -> None:
        if "/node_modules/" in path:
            self._add(path.partition("/node_modules/")[0] + "/node_modules")
        folder = os.path.dirname(path)
        if os.path.basename(folder) not in ("bin", "sbin"):
            return
        prefix = os.path.dirname(folder)
        marks = ("pyvenv.cfg", "lib", "lib64")
        if any(os.path.exists(os.path.join(prefix, mark)) for mark in marks):
            self._add(prefix)

    def _add_project(self, path: str) -> None:
        if "/node_modules/" in path:
            self._add_installation(path)
            return
        folder = os.path.dirname(path)
        candidates = [folder]
        while len(candidates) < _MAX_PROJECT_DEPTH:
            candidates.append(os.path.dirname(candidates[-1]))
        for candidate in candidates:
            if any(os.path.exists(os.path.join(candidate, name)) for name in _PROJECT_FILES):
                self._add(candidate)
                return
        self._add(folder)

    def _add(self, path: str) -> None:
        # What is granted is what a link points to.
        for one in {path, os.path.realpath(path)}:
            if any(contains(one, private) for private in (self.user_home, *self.hidden)):
                return
            if any(contains(folder, one) for folder in self.hidden):
                return
        self.found.append(path)

    def _is_changeable(self, path: str) -> bool:
        return any(contains(folder, path) for folder in self.writable)


def contains(folder: str, path: str) -> bool:
    """Return whether a path is a folder or lies in it."""
    return folder == path or path.startswith(folder.rstrip("/") + "/")


def drop_contained(paths: Iterable[str], folders: Sequence[str] = ()) -> tuple[str, ...]:
    """Return existing paths, without those that lie in another of them or in `folders`."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        outer = (*folders, *kept)
        if not any(contains(folder, path) for folder in outer) and os.path.exists(path):
            kept.append(path)
    return tuple(kept)


def _read_interpreter(path: str) -> str:
    """Return the interpreter that a script's first line names; empty if there is none."""
    try:
        with open(path, "rb") as file:
            line = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return ""
    if not line.startswith(b"#!"):
        return ""
    words = line[2:].decode(errors="replace").split()
    return words[0] if words else ""


def _read_setting(path: str, key: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition("=")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        return ""
    return ""
