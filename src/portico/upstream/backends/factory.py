"""Creates the backend of a configured server."""

import asyncio
import gzip
import importlib
import inspect
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from portico.config import BackendConfig, LimitsConfig
from portico.config_file.secret_references import dump_referencing_parts, find_references
from portico.errors import METHOD_NOT_FOUND, BackendUnavailable, RecordedOnly, RemoteError
from portico.json_text import json_codec
from portico.json_text.json_codec import to_object
from portico.storage import data_files
from portico.upstream.backend import (
    NO_OPTIONS,
    Backend,
    Connection,
    Era,
    Listener,
    Raw,
    RequestOptions,
)
from portico.upstream.backends.functions import FunctionsBackend, FunctionTool, make_function_tool
from portico.upstream.backends.late_secrets import LateSecretsBackend, ReferencedHeaders
from portico.upstream.backends.personal import PersonalBackend
from portico.upstream.containment.contained_start import make_containment
from portico.upstream.oauth.server_accounts import ServerAccounts
from portico.upstream.protocol.handshake import parse_initialize_result
from portico.upstream.request_credentials import RequestCredentials
from portico.upstream.secret_reader import SecretReader
from portico.upstream.server_log import ServerLog
from portico.upstream.transports.process import ProcessGuard
from portico.upstream.transports.stdio import StdioBackend


def make_backend(
    name: str,
    config: BackendConfig,
    limits: LimitsConfig,
    guard: ProcessGuard,
    mask: Callable[[str], str] = str,
    data_dir: Path | None = None,
    *,
    persist: bool = True,
    log: ServerLog | None = None,
    secrets: SecretReader | None = None,
    accounts: ServerAccounts | None = None,
) -> Backend:
    """Return the backend of one configured server.

    `mask` is applied to stderr lines before they are cut; `log` gets them. Pins are stored under
    `data_dir`, if `persist` allows it. `secrets` reads what the configuration refers to. `accounts`
    has the credentials of servers that are signed in to.
    """
    if config.problem is not None:
        return UnusableBackend(config.kind, config.problem)
    reader = secrets or SecretReader(guard)
    credentials: RequestCredentials | None = None
    if config.kind in ("http", "sse"):
        late = {key: value for key, value in config.headers.items() if find_references(value)}
        if late:
            credentials = ReferencedHeaders(late, reader)
            plain = {key: value for key, value in config.headers.items() if key not in late}
            config = config.model_copy(update={"headers": plain})

    def make(person: str) -> Backend:
        def make_filled(filled: BackendConfig) -> Backend:
            used = credentials
            if used is None and accounts is not None:
                used = accounts.make_credentials(name, filled, person)
            return _make_plain_backend(
                name, filled, limits, guard, mask, data_dir, persist, log, used
            )

        if find_references(dump_referencing_parts(config)):
            return LateSecretsBackend(config, reader, make_filled)
        return make_filled(config)

    if config.is_personal:
        return PersonalBackend(config.kind, make)
    return make("")


def _make_plain_backend(
    name: str,
    config: BackendConfig,
    limits: LimitsConfig,
    guard: ProcessGuard,
    mask: Callable[[str], str],
    data_dir: Path | None,
    persist: bool,
    log: ServerLog | None,
    credentials: RequestCredentials | None,
) -> Backend:
    """Return the backend of a server whose secrets are filled in."""
    max_bytes = int(limits.max_message_bytes)
    containment = None
    if config.containment is not None:
        containment = make_containment(config.containment, data_dir, name)
    match config.kind:
        case "stdio":
            return StdioBackend(
                name,
                cast(str, config.command),
                config.args,
                config.env,
                config.inherit_env,
                config.cwd,
                config.protocol,
                to_roots(config.roots),
                max_bytes,
                guard,
                mask=mask,
                log=log or ServerLog(),
                containment=containment,
            )
        case "http" | "sse":
            return _make_url_backend(name, config, max_bytes, credentials)
        case "openapi":
            pins = None if data_dir is None else data_dir / data_files.ORIGINS_FOLDER
            return _make_openapi_backend(name, config, max_bytes, pins, persist)
        case "commands":
            # Imported late: many gateways need none.
            from portico.upstream.backends.commands import CommandsBackend
            from portico.upstream.backends.program_run import ProgramContext

            context = ProgramContext(config.env, config.inherit_env, config.cwd, max_bytes, guard)
            return CommandsBackend(name, config.commands, context, config.description)
        case "functions":
            return ImportedFunctionsBackend(name, cast(str, config.functions), config.cwd)
        case "recorded":
            return RecordedBackend(name, cast(Path, config.recorded), config.recorded_slug)


def _make_url_backend(
    name: str, config: BackendConfig, max_bytes: int, credentials: RequestCredentials | None
) -> Backend:
    # Imported late: the HTTP code costs start-up time, and many gateways need none.
    from portico.upstream.backends.http import HttpBackend, SseBackend

    backend_type = SseBackend if config.kind == "sse" else HttpBackend
    roots = to_roots(config.roots)
    return backend_type(
        name, cast(str, config.url), config.headers, config.protocol, roots, max_bytes, credentials
    )


def _make_openapi_backend(
    name: str, config: BackendConfig, max_bytes: int, pins: Path | None, persist: bool
) -> Backend:
    # Imported late: many gateways need none. The HTTP client is imported with the first call.
    from portico.upstream.backends.openapi.backend import OpenApiBackend

    location = cast(str, config.openapi)
    return OpenApiBackend(
        name, location, config.base_url, config.headers, config.query, max_bytes, pins, persist
    )


class UnusableBackend:
    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        self.problem = problem

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        raise BackendUnavailable(self.problem, advice="Correct the configuration.")

    def diagnostics(self) -> Mapping[str, Any]:
        return {"problem": self.problem}


class ImportedFunctionsBackend:
    """Functions that are imported at the first connection; a failing import affects only them."""

    kind = "functions"

    def __init__(self, name: str, target: str, folder: str | None = None) -> None:
        self._name = name
        self._target = target
        self._folder = folder

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        tools = await asyncio.to_thread(load_functions, self._target, self._folder)
        return await FunctionsBackend(self._name, tools).connect(listener, era)

    def diagnostics(self) -> Mapping[str, Any]:
        return {"functions": self._target}


def load_functions(target: str, folder: str | None = None) -> tuple[FunctionTool, ...]:
    """Load `package.module[:attribute]`: a module's functions, a mapping, a list, one function.

    A module may be in `folder`, which stays on `sys.path` for later imports; it is appended last,
    so that no file there hides a module of the gateway. Raises BackendUnavailable.
    """
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    module_name, _, attribute = target.partition(":")
    try:
        target_object: Any = importlib.import_module(module_name)
        for part in attribute.split(".") if attribute else ():
            target_object = getattr(target_object, part)
        return tuple(
            item if isinstance(item, FunctionTool) else make_function_tool(item, key)
            for key, item in _iter_named_functions(target_object)
        )
    except Exception as error:  # user code: anything it raises is the reason
        raise BackendUnavailable(
            f"{target} cannot be used: {type(error).__name__}: {error}",
            advice="`functions` is package.module or package.module:attribute, "
            "beside the configuration file or importable by the gateway's Python.",
        ) from error


def _iter_named_functions(found: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(found, Mapping):
        return found.items()
    if inspect.isroutine(found):
        return [(found.__name__, found)]
    if isinstance(found, Iterable):
        return (
            (item.definition["name"] if isinstance(item, FunctionTool) else item.__name__, item)
            for item in found
        )
    return (
        (key, value)
        for key, value in vars(found).items()
        # A function that the module imported from elsewhere is not one of its tools.
        if inspect.isfunction(value)
        and key[0] != "_"
        and value.__module__ == getattr(found, "__name__", "")
    )


def to_roots(folders: Iterable[str]) -> tuple[Raw, ...]:
    roots: list[Raw] = []
    for folder in folders:
        uri = folder if "://" in folder else Path(folder).expanduser().absolute().as_uri()
        roots.append({"uri": uri, "name": Path(folder).name})
    return tuple(roots)


_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


@dataclass(frozen=True)
class RecordedBackend:
    """A listing in a `.json` file, or one line of a `.jsonl[.gz]` file chosen by its slug."""

    name: str
    path: Path
    slug: str | None = None

    kind = "recorded"

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Read the recording; raise BackendUnavailable if it is missing or invalid."""
        try:
            records = await asyncio.to_thread(
                _load_records, self.path, self.path.stat().st_mtime_ns
            )
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise BackendUnavailable(
                f"the recording {self.path} cannot be read: {error}",
                advice="A recording is a .json file, or one line of a .jsonl or .jsonl.gz file.",
            ) from error
        if self.slug is not None:
            record = records.get(self.slug)
        else:
            record = next(iter(records.values()), None)
        if record is None:
            raise BackendUnavailable(
                f"the recording {self.path} has no entry {self.slug or ''!r}",
                advice=f"It has {', '.join(sorted(records)[:10]) or 'none at all'}.",
            )
        return RecordedConnection(self.name, _parse_recording(record))

    def diagnostics(self) -> Mapping[str, Any]:
        return {"recorded": str(self.path)}


class RecordedConnection:
    def __init__(self, name: str, recording: Raw) -> None:
        self._name = name
        self._recording = recording
        self.initialize_info = parse_initialize_result(to_object(recording.get("initialize")))

    async def request(
        self, method: str, params: Raw | None = None, options: RequestOptions = NO_OPTIONS
    ) -> Raw:
        """Return recorded lists; raise RecordedOnly or RemoteError for everything else."""
        if key := _LISTS.get(method):
            return {key: self._recording.get(key) or []}
        if method in ("tools/call", "resources/read", "prompts/get", "completion/complete"):
            raise RecordedOnly(
                f"{self._name} is a recording: its tools can be searched and described, not called",
                advice="Configure the real server (command or url) to call it.",
            )
        raise RemoteError(METHOD_NOT_FOUND, f"{method} is not part of a recording")

    async def notify(self, method: str, params: Raw | None = None) -> None:
        """Ignore the notification."""

    async def close(self) -> None:
        """Do nothing: no resources are held."""


@lru_cache(maxsize=1)
def _load_records(path: Path, modified: int) -> Mapping[str, bytes]:
    """Return recordings by slug. The last file is cached: one file often serves many servers."""
    if path.suffix == ".json":
        _parse_recording(text := path.read_bytes())
        return {"": text}
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        return {
            str(_parse_recording(line).get("slug", number)): line
            for number, line in enumerate(lines)
            if line.strip()
        }


def _parse_recording(text: bytes) -> Raw:
    recording = json_codec.loads(text)
    if not isinstance(recording, dict):
        raise ValueError("a recording is a JSON object")
    return cast(Raw, recording)
