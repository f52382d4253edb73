"""The specification of one contained start: what the server may reach, and its own folders."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import stat
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from portico.config import ContainmentConfig
from portico.containment.specification import Specification
from portico.errors import BackendUnavailable
from portico.standard_paths import get_data_folder
from portico.upstream.containment.granted_paths import (
    SYSTEM_PATHS,
    USER_PROGRAMS,
    PathFinder,
    contains,
    drop_contained,
)
from portico.upstream.containment.machine_support import advise, find_support

CONTAINED_FOLDER = "contained"
"""Folder name in the data directory: a folder of its own for each contained server."""
_REGISTRATIONS = "gateways"
_MAX_REGISTRATION_BYTES = 64 * 1024
_OWN_VARIABLES = {
    "HOME": "{home}",
    "XDG_CACHE_HOME": "{home}/.cache",
    "XDG_CONFIG_HOME": "{home}/.config",
    "XDG_DATA_HOME": "{home}/.local/share",
    "XDG_STATE_HOME": "{home}/.local/state",
    "XDG_RUNTIME_DIR": "{temporary}",
    "TMPDIR": "{temporary}",
}


@dataclass(frozen=True)
class Containment:
    """How a server is contained, and where its own folders are."""

    settings: ContainmentConfig
    data_dir: Path
    name: str

    @property
    def folder(self) -> str:
        return os.path.join(os.path.abspath(self.data_dir), CONTAINED_FOLDER, self.name)


def make_containment(settings: ContainmentConfig, data_dir: Path | None, name: str) -> Containment:
    """Return a containment; without a data folder, what the server keeps ends with it."""
    if data_dir is not None:
        return Containment(settings, data_dir, name)
    folder = tempfile.mkdtemp(prefix="portico-")
    containment = Containment(settings, Path(folder), name)
    weakref.finalize(containment, shutil.rmtree, folder, ignore_errors=True)
    return containment


async def specify_start(
    containment: Containment,
    command: Sequence[str],
    environ: Mapping[str, str],
    own_env: Mapping[str, str],
    cwd: str | None,
) -> Specification:
    """Return what the launcher is told; raises BackendUnavailable if it cannot be contained.

    `environ` is the server's environment, `own_env` what its entry sets of it.
    """
    network = containment.settings.network
    support = await find_support()
    if obstacle := support.find_obstacle(network):
        raise BackendUnavailable(
            f"it is to be contained, and that is not possible here: {obstacle}",
            advice=advise(support, network),
        )
    specification = await asyncio.to_thread(
        build_specification, containment, command, environ, own_env, cwd, str(Path.home())
    )
    try:
        _make_folders(containment, specification)
    except OSError as error:
        raise BackendUnavailable(
            f"its own folder cannot be made: {error}",
            advice=f"Make {containment.folder} writable for this user.",
        ) from error
    return replace(
        specification,
        has_namespaces=support.has_namespaces,
        refused_ports=tuple(sorted({*list_own_ports(), *list_registered_ports()})),
    )


def build_specification(
    containment: Containment,
    command: Sequence[str],
    environ: Mapping[str, str],
    own_env: Mapping[str, str],
    cwd: str | None,
    user_home: str,
) -> Specification:
    """Decide what a server may reach; raises BackendUnavailable for a grant that is too wide."""
    settings = containment.settings
    # The user's own as well, for a gateway that has none or another.
    hidden = (os.path.abspath(containment.data_dir), get_data_folder(os.environ))
    folder = containment.folder
    named_write = [_normalize(path) for path in settings.write]
    named_read = [_normalize(path) for path in settings.read]
    for key, paths in (("write", named_write), ("read", named_read)):
        for path in paths:
            for one in hidden:
                _check_grant(key, path, one)
    write = drop_contained(named_write)
    finder = PathFinder(user_home, hidden, (*write, folder))
    finder.add_program(command[0])
    finder.add_named(command[1:], cwd or "")
    finder.add_named((value for value in own_env.values() if os.path.isabs(value)), "")
    finder.add_certificates(environ)
    if cwd is not None:
        finder.add_named([cwd], "")
    programs = [os.path.join(user_home, name) for name in USER_PROGRAMS]
    read = drop_contained([*SYSTEM_PATHS, *programs, *finder.found, *named_read], write)
    home = os.path.join(folder, "home")
    start = home
    if cwd is not None and any(contains(path, cwd) for path in (*read, *write)):
        start = cwd
    below_home = [path for path in (*read, *write) if contains(user_home, path)]
    return Specification(
        command=tuple(command),
        network=settings.network,
        read=read,
        write=write,
        home=home,
        temporary=os.path.join(folder, "tmp"),
        root=os.path.join(folder, "root"),
        cwd=start,
        links=tuple((os.path.relpath(path, user_home), path) for path in below_home),
        own_variables=tuple(item for item in _OWN_VARIABLES.items() if item[0] not in own_env),
    )


def list_own_ports() -> set[int]:
    """Return the ports that this process has bound: those of the gateway itself."""
    ports: set[int] = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                ports |= _find_bound_port(int(name))
    return ports


def list_registered_ports() -> set[int]:
    """Return the ports of all gateways of this user that are registered."""
    ports: set[int] = set()
    with contextlib.suppress(OSError):
        for file in Path(get_data_folder(os.environ), _REGISTRATIONS).glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if file.stat().st_size <= _MAX_REGISTRATION_BYTES:
                    url = str(json.loads(file.read_bytes())["url"])
                    ports.add(urlsplit(url).port or 0)
    return ports - {0}


def _find_bound_port(descriptor: int) -> set[int]:
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return set()
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
            return set()
        try:
            copy.getpeername()
        except OSError:
            return {int(copy.getsockname()[1])} - {0}
        return set()


def _normalize(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _check_grant(key: str, path: str, data_dir: str) -> None:
    if contains(path, data_dir) or contains(os.path.realpath(path), os.path.realpath(data_dir)):
        raise BackendUnavailable(
            f"contain.{key} names {path}, which contains Portico's own data folder (keys,"
            " credentials, audit log)",
            advice="Name the folders in it that the server needs.",
        )
    if contains(data_dir, path) or contains(os.path.realpath(data_dir), os.path.realpath(path)):
        raise BackendUnavailable(
            f"contain.{key} names {path}, which is in Portico's own data folder",
            advice="Leave it out: the server has a home of its own.",
        )


def _make_folders(containment: Containment, specification: Specification) -> None:
    os.makedirs(containment.data_dir, exist_ok=True)
    outer = os.path.dirname(containment.folder)
    own = (specification.home, specification.temporary, specification.root)
    for path in (outer, containment.folder, *own):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
