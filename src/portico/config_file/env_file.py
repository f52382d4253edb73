"""The file that `${VAR}` is filled in from beside the environment, which wins over it.

One that cannot be read costs the servers that need it, and no other: it is told, and they say what they lack.
"""

import errno
from collections.abc import Mapping
from pathlib import Path

from portico.config_file.draft import Draft
from portico.config_file.file_permissions import WritableByOthers, check_file
from portico.config_file.finding import Finding
from portico.config_file.placeholders import Places, expand, read_env_file
from portico.config_file.reading import Node, Unreadable, decode

LARGEST = 64 * 2**20
"""Bytes: a project may name a device that never ends. A pipe is good: secrets often come through one."""
VARIABLE = "PORTICO_ENV_FILE"
Contents = Mapping[Path, bytes]
"""What files will hold that are not written yet."""


def content(path: Path, unwritten: Contents) -> bytes:
    """The bytes of a file, as it is or will be; WritableByOthers where somebody else could have written it."""
    if path in unwritten:
        return unwritten[path]
    with path.open("rb") as file:
        check_file(path, file.fileno())
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST >> 20} MiB")
    return data


def with_named_file(draft: Draft, environ: Mapping[str, str], cwd: Path, unwritten: Contents) -> Mapping[str, str]:
    """The environment with the file that it names itself."""
    named = environ.get(VARIABLE, "").strip()
    if not named:
        return environ
    return _with_file(draft, cwd / Path(named).expanduser(), environ, Finding(VARIABLE, 0, "", ""), unwritten)


def with_env_file(
    draft: Draft,
    node: Node | None,
    shown: str,
    environ: Mapping[str, str],
    places: Places,
    base: Path,
    unwritten: Contents,
) -> Mapping[str, str]:
    """The environment with the file that a configuration's own key names, unless the environment names one."""
    if node is None or not isinstance(node.value, str) or environ.get(VARIABLE, "").strip():
        return environ
    path = expand(node.text, environ, places)
    if path.problems:
        return environ  # told with the key itself
    full = base / Path(path.text).expanduser()
    return _with_file(draft, full, environ, Finding(shown, node.line, "env_file", ""), unwritten)


def _with_file(
    draft: Draft, path: Path, environ: Mapping[str, str], at: Finding, unwritten: Contents
) -> Mapping[str, str]:
    try:
        values, odd = read_env_file(decode(content(path, unwritten)))
    except WritableByOthers as error:
        draft.files.append(path)
        draft.errors.append(Finding(at.file, at.line, at.key, error.message, error.advice))
        return environ
    except (OSError, Unreadable) as error:
        reason = (error.strerror or type(error).__name__) if isinstance(error, OSError) else error.message
        message = f"{path} cannot be read ({reason}): its variables are missing"
        draft.warnings.append(Finding(at.file, at.line, at.key, message, _advice(error)))
        return environ
    draft.files.append(path)
    draft.filed.update(values)
    draft.warnings += [Finding(str(path), line, "", "left out, not KEY=VALUE") for line in odd]
    return {**values, **environ}


def _advice(error: OSError | Unreadable) -> str:
    if isinstance(error, PermissionError):
        return "Let the user that Portico runs as read it."
    if isinstance(error, FileNotFoundError):
        return "Write KEY=VALUE lines into it and save this file again, or remove the key."
    return "Name a file of KEY=VALUE lines."
