"""Creates the backend of a configured server."""

import asyncio
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from portico.config import BackendConfig, LimitsConfig
from portico.errors import BackendUnavailable
from portico.storage import origin_pins
from portico.upstream.backend import Backend, Connection, Era, Listener, Raw
from portico.upstream.backends.functions import FunctionsBackend, FunctionTool, make_function_tool
from portico.upstream.backends.recorded import RecordedBackend
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
) -> Backend:
    """Return the backend of one configured server.

    `mask` is applied to stderr lines before they are cut. Pins are stored under `data_dir`, if
    `persist` allows it.
    """
    if config.problem is not None:
        return UnusableBackend(config.kind, config.problem)
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
                int(limits.max_message_bytes),
                guard,
                mask=mask,
            )
        case "http" | "sse":
            # Imported late: the HTTP code costs start-up time, and many gateways need none.
            from portico.upstream.transports.http import HttpBackend
            from portico.upstream.transports.sse import SseBackend

            url = cast(str, config.url)
            size = int(limits.max_message_bytes)
            if config.kind == "sse":
                return SseBackend(name, url, config.headers, to_roots(config.roots), size)
            return HttpBackend(
                name, url, config.headers, config.protocol, to_roots(config.roots), size
            )
        case "openapi":
            # Imported late: many gateways need none. The HTTP client is imported with the first
            # call.
            from portico.upstream.backends.openapi.backend import OpenApiBackend

            pins = None if data_dir is None else data_dir / origin_pins.FOLDER
            return OpenApiBackend(
                name,
                cast(str, config.openapi),
                config.base_url,
                config.headers,
                config.query,
                int(limits.max_message_bytes),
                pins,
                persist,
            )
        case "commands":
            # Imported late: many gateways need none.
            from portico.upstream.backends.commands.backend import CommandsBackend
            from portico.upstream.backends.commands.program import ProgramContext

            context = ProgramContext(
                config.env, config.inherit_env, config.cwd, int(limits.max_message_bytes), guard
            )
            return CommandsBackend(name, config.commands, context, config.description)
        case "functions":
            return ImportedFunctionsBackend(name, cast(str, config.functions), config.cwd)
        case "recorded":
            return RecordedBackend(name, cast(Path, config.recorded), config.recorded_slug)


class UnusableBackend:
    """A server whose configuration cannot be used."""

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        self.problem = problem

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Raise BackendUnavailable with the problem."""
        raise BackendUnavailable(self.problem, advice="Mend the configuration.")

    def diagnostics(self) -> Mapping[str, Any]:
        """Return the problem."""
        return {"problem": self.problem}


class ImportedFunctionsBackend:
    """Functions that are imported at the first connection; a failing import affects only them."""

    kind = "functions"

    def __init__(self, name: str, target: str, folder: str | None = None) -> None:
        self._name = name
        self._target = target
        self._folder = folder

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Import the functions in a thread."""
        tools = await asyncio.to_thread(load_functions, self._target, self._folder)
        return await FunctionsBackend(self._name, tools).connect(listener, era)

    def diagnostics(self) -> Mapping[str, Any]:
        """Return the import target."""
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
    """Convert folders to MCP roots."""
    roots: list[Raw] = []
    for folder in folders:
        uri = folder if "://" in folder else Path(folder).expanduser().absolute().as_uri()
        roots.append({"uri": uri, "name": Path(folder).name})
    return tuple(roots)
