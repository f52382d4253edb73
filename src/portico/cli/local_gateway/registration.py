"""Registrations of running gateways: `gateways/<id>.json` in the user's data folder.

A gateway writes one (mode 0600, in a folder of mode 0700) after it listens and removes it when it
ends. It holds the process, the configuration that is served, the local address and a random key. A
registration only says where to ask: whether its gateway lives is decided by `connection`, where the
gateway proves that it has the key. Standard library only.
"""

import json
import os
import sys

from portico.standard_paths import find_config_files, get_data_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

FOLDER = "gateways"
WILDCARD_HOSTS = ("0.0.0.0", "::", "")  # noqa: S104 - to be recognised, not to be bound
MAX_FILE_BYTES = 64 * 1024
MAX_FILES = 256
"""Registrations that are read; a folder with more is damaged."""
_UNRELATED_SETTINGS = (
    "PORTICO_CONFIG",
    "PORTICO_DEBUG",
    "PORTICO_LOG_",
    "PORTICO_TOKEN",
    "PORTICO_HOST",
    "PORTICO_PORT",
    "PORTICO_API",
    "PORTICO_METRICS",
    "PORTICO_ALLOWED_",
    "PORTICO_GATEWAY__",
    "PORTICO_ALLOW_WRITABLE_CONFIG",
)
"""Beginnings of variables that change how a gateway is reached or logs, not what it serves."""


class ServedConfiguration:
    """Which configuration a command means: its files, and the settings in the environment."""

    def __init__(self, files: "Sequence[str]", folder: str, id: str) -> None:
        self.files = tuple(files)
        """Canonical paths; empty where no configuration exists and the demo is served."""
        self.folder = folder
        """The folder of the registrations."""
        self.id = id
        """Digest of files, data folder and settings, the same for everybody who means the same."""


def identify_configuration(
    files: "Sequence[str]" = (),
    exposure: str | None = None,
    environ: "Mapping[str, str] | None" = None,
    cwd: str | None = None,
) -> ServedConfiguration:
    """Identify the configuration of these --config files, or of the standard ones."""
    environ = os.environ if environ is None else environ
    cwd = cwd or os.getcwd()
    chosen = list(files) or find_config_files(environ, cwd)
    paths = [os.path.realpath(os.path.join(cwd, os.path.expanduser(path))) for path in chosen]
    data = os.path.realpath(get_data_folder(environ))
    settings = [f"{name}={value}" for name, value in list_identifying_settings(environ)]
    id = compute_digest(b"", "configuration", *paths, "", data, exposure or "", *settings)
    return ServedConfiguration(paths, os.path.join(data, FOLDER), id[:32])


def list_identifying_settings(environ: "Mapping[str, str]") -> list[tuple[str, str]]:
    """Return the settings in the environment that change what a gateway serves, sorted."""
    return sorted(
        (name, value)
        for name, value in environ.items()
        if name.startswith("PORTICO_") and value and not name.startswith(_UNRELATED_SETTINGS)
    )


def compute_digest(key: bytes, *parts: str) -> str:
    """Return a digest of texts, keyed by `key`; no two lists of parts have the same."""
    # Not hashlib: that loads OpenSSL, which takes longer than everything else here.
    from _blake2 import blake2b

    state = blake2b(key=key, digest_size=32)
    for part in parts:
        data = part.encode(errors="surrogateescape")
        state.update(len(data).to_bytes(8, "big") + data)
    return state.hexdigest()


class Registration:
    """What one gateway says of itself."""

    def __init__(self, path: str, data: "Mapping[str, Any]") -> None:
        """`data` is what the file holds; raises KeyError, TypeError or ValueError if incomplete."""
        self.path = path
        self.configuration = str(data["configuration"])
        self.files = [str(file) for file in data["files"]]
        self.pid = int(data["pid"])
        self.process_start = str(data["process_start"])
        self.registered_at = float(data["registered_at"])
        self.address = str(data["address"])
        """`unix:PATH` or `tcp:HOST:PORT`."""
        self.url = str(data["url"])
        """Where it serves HTTP."""
        self.version = str(data["version"])
        self.is_background = bool(data["background"])
        self.key = bytes.fromhex(data["key"])

    def to_data(self) -> "dict[str, Any]":
        """Return what the file holds."""
        return {
            "configuration": self.configuration,
            "files": self.files,
            "pid": self.pid,
            "process_start": self.process_start,
            "registered_at": self.registered_at,
            "address": self.address,
            "url": self.url,
            "version": self.version,
            "background": self.is_background,
            "key": self.key.hex(),
        }

    def is_process_gone(self) -> bool:
        """Return whether the process has certainly ended, or its number is another's by now."""
        if sys.platform == "win32":
            return False  # only the connection tells
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return self.process_start != read_process_start(self.pid)

    def remove(self) -> None:
        """Remove the file and the socket."""
        paths = [self.path]
        if self.address.startswith("unix:"):
            paths.append(self.address.removeprefix("unix:"))
        for path in paths:
            try:
                os.unlink(path)
            except OSError:
                continue


def list_registrations(configuration: ServedConfiguration) -> list[Registration]:
    """Return the registrations of a configuration, the newest first.

    Files of another user or readable by others are ignored; those of a process that has ended are
    removed.
    """
    found: list[Registration] = []
    try:
        names = sorted(os.listdir(configuration.folder))
    except OSError:
        return []
    for name in names[:MAX_FILES]:
        if not name.endswith(".json"):
            continue
        registration = _read_registration(os.path.join(configuration.folder, name))
        if registration is None or registration.configuration != configuration.id:
            continue
        if registration.is_process_gone():
            registration.remove()
        else:
            found.append(registration)
    return sorted(found, key=lambda one: -one.registered_at)


def write_registration(registration: Registration) -> None:
    """Write the file at once and whole, for this user only; raises OSError."""
    temporary = f"{registration.path}.{os.getpid()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(registration.to_data(), file)
        os.replace(temporary, registration.path)
    except OSError:
        os.unlink(temporary)
        raise


def ensure_private_folder(path: str) -> None:
    """Create a folder that only this user may enter; raises OSError if another user owns it."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    if sys.platform == "win32":
        return  # folders of a user's profile are private there
    found = os.stat(path)
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user")
    if found.st_mode & 0o077:
        os.chmod(path, 0o700)


def read_process_start(pid: int) -> str:
    """Return when a process began, as the kernel counts it; empty where that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # After the name in parentheses, which may contain anything.
            fields = file.read().rpartition(b")")[2].split()
        if fields[0] == b"Z":
            return ""  # it has ended, and its parent has not noticed yet
        return fields[19].decode()
    except (OSError, IndexError):
        return ""


def _read_registration(path: str) -> Registration | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if sys.platform != "win32" and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
                return None
            return Registration(path, json.loads(file.read(MAX_FILE_BYTES)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def build_url(host: str, port: int) -> str:
    """Return the URL of a listener, on loopback if it listens on every address."""
    if host in WILDCARD_HOSTS:
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
