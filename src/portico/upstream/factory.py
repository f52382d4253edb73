"""From a server's configuration to the backend that reaches it."""

import importlib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from portico.config import BackendConfig, Limits
from portico.errors import BackendUnavailable
from portico.upstream.backend import Backend, Connection, Era, Listener, Raw
from portico.upstream.functions import FunctionsBackend, FunctionTool, function_tool
from portico.upstream.process import Guard
from portico.upstream.recorded import RecordedBackend
from portico.upstream.stdio import StdioBackend


def make_backend(name: str, config: BackendConfig, limits: Limits, guard: Guard) -> Backend:
    """The backend of one configured server."""
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
                roots(config.roots),
                int(limits.max_message_bytes),
                guard,
            )
        case "http" | "sse":
            # Imported here: the HTTP client costs start-up time and many installations have no HTTP server.
            from portico.upstream.http import HttpBackend
            from portico.upstream.sse import SseBackend

            url, size = cast(str, config.url), int(limits.max_message_bytes)
            if config.kind == "sse":
                return SseBackend(name, url, config.headers, roots(config.roots), size)
            return HttpBackend(name, url, config.headers, config.protocol, roots(config.roots), size)
        case "functions":
            return FunctionsBackend(name, load_functions(cast(str, config.functions)), config.description)
        case "recorded":
            return RecordedBackend(name, cast(Path, config.recorded), config.recorded_slug)


class UnusableBackend:
    """A server whose configuration cannot be used; it says why."""

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        self.problem = problem

    async def connect(self, listener: Listener, era: Era | None = None) -> Connection:
        """Refuse."""
        raise BackendUnavailable(self.problem, advice="Mend the configuration.")

    def diagnostics(self) -> Mapping[str, Any]:
        """What is wrong."""
        return {"problem": self.problem}


def load_functions(target: str) -> tuple[FunctionTool, ...]:
    """The functions `package.module:attribute` names: a module's public functions, a mapping, or a list."""
    module_name, _, attribute = target.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise BackendUnavailable(f"{target} cannot be imported: {error}") from error
    if isinstance(found, Mapping):
        named: Iterable[tuple[str, Any]] = found.items()
    elif isinstance(found, Iterable):
        named = ((item.definition["name"] if isinstance(item, FunctionTool) else item.__name__, item) for item in found)
    else:
        named = ((key, value) for key, value in vars(found).items() if inspect.isfunction(value) and key[0] != "_")
    return tuple(item if isinstance(item, FunctionTool) else function_tool(item, key) for key, item in named)


def roots(folders: Iterable[str]) -> tuple[Raw, ...]:
    """Folders as MCP roots."""
    return tuple(
        {"uri": folder if "://" in folder else Path(folder).expanduser().absolute().as_uri(), "name": Path(folder).name}
        for folder in folders
    )
