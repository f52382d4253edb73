"""The env_file that `${VAR}` is filled in from beside the environment, which takes precedence.

A file that cannot be read is reported and only affects servers that need its variables.
"""

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from portico.config_file.draft import ConfigDraft, ConfigFinding, SourceContext
from portico.config_file.file_permissions import WritableByOthers, check_file
from portico.config_file.placeholders import expand, parse_env_file
from portico.config_file.tree_reader import ConfigNode, ConfigSyntaxError, decode_text

MAX_FILE_BYTES = 64 * 2**20
"""Bytes; a project may name an endless device. Pipes are allowed: secrets often come through
one."""
ENV_FILE_VARIABLE = "PORTICO_ENV_FILE"
UnwrittenFiles = Mapping[Path, bytes]
"""Content of files that are not written yet."""


def read_content(path: Path, unwritten: UnwrittenFiles) -> bytes:
    """Return the content of a file; raises WritableByOthers if others could have written it."""
    if path in unwritten:
        return unwritten[path]
    with path.open("rb") as file:
        check_file(path, file.fileno())
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_FILE_BYTES >> 20} MiB")
    return data


def merge_env_file_from_environ(
    draft: ConfigDraft, environ: Mapping[str, str], cwd: Path, unwritten: UnwrittenFiles
) -> Mapping[str, str]:
    """Return the environment extended by the file that PORTICO_ENV_FILE names."""
    env_file = environ.get(ENV_FILE_VARIABLE, "").strip()
    if not env_file:
        return environ
    return _merge_env_file(
        draft,
        cwd / Path(env_file).expanduser(),
        environ,
        ConfigFinding(ENV_FILE_VARIABLE, 0, "", ""),
        unwritten,
    )


def merge_env_file_from_config(
    draft: ConfigDraft, node: ConfigNode | None, context: SourceContext, unwritten: UnwrittenFiles
) -> SourceContext:
    """Return the context with the variables of the configured env_file, unless the environment
    names one itself."""
    environ = context.environ
    named = environ.get(ENV_FILE_VARIABLE, "").strip()
    if node is None or not isinstance(node.value, str) or named:
        return context
    path = expand(node.text, environ, context.folders)
    if path.problems:
        return context  # reported with the key itself
    full = context.base / Path(path.text).expanduser()
    reference = ConfigFinding(context.display_path, node.line, "env_file", "")
    merged = _merge_env_file(draft, full, environ, reference, unwritten)
    return replace(context, environ=merged)


def _merge_env_file(
    draft: ConfigDraft,
    path: Path,
    environ: Mapping[str, str],
    reference: ConfigFinding,
    unwritten: UnwrittenFiles,
) -> Mapping[str, str]:
    try:
        values, invalid_lines = parse_env_file(decode_text(read_content(path, unwritten)))
    except WritableByOthers as error:
        draft.files.append(path)
        draft.errors.append(replace(reference, message=error.message, advice=error.advice))
        return environ
    except (OSError, ConfigSyntaxError) as error:
        message = f"{path} cannot be read ({describe_error(error)}): its variables are missing"
        draft.warnings.append(replace(reference, message=message, advice=_advise(error)))
        return environ
    draft.files.append(path)
    draft.env_file_variables.update(values)
    for line in invalid_lines:
        draft.warn(str(path), line, "", "left out, not KEY=VALUE")
    return {**values, **environ}


def describe_error(error: OSError | ConfigSyntaxError) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return error.message


def _advise(error: OSError | ConfigSyntaxError) -> str:
    if isinstance(error, PermissionError):
        return "Let the user that Portico runs as read it."
    if isinstance(error, FileNotFoundError):
        return "Write KEY=VALUE lines into it and save this file again, or remove the key."
    return "Name a file of KEY=VALUE lines."
