"""Checks the installation: its endpoint, sandbox, search model and limits of the machine."""

import asyncio
import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from typing import Any

from portico import __version__
from portico.cli.commands.serve import bind_socket
from portico.cli.doctor.finding import (
    ConfigLocation,
    ConfigLocations,
    DoctorFinding,
    broken,
    note,
    warning,
)
from portico.cli.local_gateway.connection import RunningGateway
from portico.config import Config
from portico.errors import ConfigError, PorticoError
from portico.rendering.token_budget import get_best_counter
from portico.scripts.engines import EngineRegistry
from portico.scripts.sandbox.script import Language, Script, ScriptLimits
from portico.scripts.sandbox.worker.jail import find_missing_layers
from portico.search import EncoderUnavailable, get_shipped_encoder
from portico.server.http.app import check_exposure

_FILES_PER_SERVER = 8
_OWN_FILES = 128
"""File descriptors: about three pipes a server; client sockets, files and sandboxes."""
_SUM_SCRIPTS: dict[Language, str] = {
    "python": "1 + 1",
    "lua": "return 1 + 1",
    "javascript": "1 + 1",
    "typescript": "const one: number = 1; one + 1",
}
_RUN_S = 30.0
_ENGINE_PACKAGES = {
    "python": "pydantic-monty",
    "lua": "lupa",
    "javascript": "quickjs-ng",
    "typescript": "quickjs-ng",
}


def collect_versions() -> dict[str, str]:
    return {
        "portico": __version__,
        "python": platform.python_version(),
        "mcp": importlib.metadata.version("mcp"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "tokens": get_best_counter().name,
    }


async def check_search_model() -> list[DoctorFinding]:
    """Check that the encoder of semantic search loads."""
    try:
        await asyncio.to_thread(get_shipped_encoder().load)
    except EncoderUnavailable as error:
        message = f"tools are found by words only, not by meaning: {error}"
        remedy = "pip install --force-reinstall portico-mcp"
        return [warning("search.words_only", message, remedy)]
    return []


def check_open_file_limit(server_count: int) -> Iterator[DoctorFinding]:
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OWN_FILES + _FILES_PER_SERVER * server_count
    if soft != resource.RLIM_INFINITY and soft < needed:
        remedy = f"ulimit -n {max(needed, 4_096)}"
        if hard != resource.RLIM_INFINITY and hard < needed:
            remedy += f" (the most here is {hard})"
        yield warning(
            "files.limit_low",
            f"this user may have {soft} files open, and {server_count} servers need about {needed}",
            remedy,
        )


async def check_scripts(
    config: Config, locations: ConfigLocations
) -> tuple[dict[str, str], list[DoctorFinding]]:
    """Run a sum in each configured language; return the results, and what is wrong."""
    profiles = [config.resolve_profile(name) for name in (None, *config.profiles)]
    if not any("run_code" in profile.meta_tools for profile in profiles):
        return {}, []
    engines = EngineRegistry(1)
    results: dict[str, str] = {}
    findings: list[DoctorFinding] = []
    try:
        for position, language in enumerate(config.code.languages):
            at = locations.locate("code", "languages", position)
            problem = await _run_sum(engines, language, config)
            results[language] = problem or "works"
            if problem:
                findings.append(_make_engine_finding(language, problem, at))
            elif not any(finding.id == "sandbox.jail_open" for finding in findings):
                findings += _check_jail(engines, language, at)
    finally:
        await engines.close()
    return results, findings


async def _run_sum(engines: EngineRegistry, language: Language, config: Config) -> str:
    """Return why a script does not run; empty if it does."""
    limits = ScriptLimits(
        wall_s=_RUN_S, cpu_s=config.code.cpu_s, memory_bytes=int(config.code.memory)
    )
    script = Script(_SUM_SCRIPTS[language], language, limits=limits)
    try:
        async with asyncio.timeout(2 * _RUN_S):
            outcome = await engines.get_engine(language).run(script, _refuse_tool_call)
    except Exception as error:  # engines that cannot be imported or started raise anything
        return f"{type(error).__name__}: {error}"
    if outcome.fault is not None:
        return outcome.fault.message
    if outcome.value == 2:
        return ""
    return f"1 + 1 made {outcome.value!r}"


async def _refuse_tool_call(
    namespace: str, function: str, positional: list[Any], named: dict[str, Any]
) -> Any:
    raise AssertionError("a sum calls no tool")


def _make_engine_finding(language: Language, problem: str, at: ConfigLocation) -> DoctorFinding:
    message = f"scripts in {language} do not run: {problem[:300]}"
    instead = f"or leave {language} out of code.languages"
    if any(word in problem for word in ("No module named", "ImportError", "ModuleNotFound")):
        remedy = f"pip install {_ENGINE_PACKAGES[language]}  {instead}"
        return broken("sandbox.engine_missing", message, remedy, at)
    return broken("sandbox.fails", message, f"Raise code.memory, {instead}.", at)


def _check_jail(
    engines: EngineRegistry, language: Language, at: ConfigLocation
) -> list[DoctorFinding]:
    restrictions = getattr(engines.get_engine(language), "restrictions", ())
    layers = ", ".join(find_missing_layers(restrictions))
    if not layers:
        return []
    if sys.platform != "linux":
        message = f"on this system scripts run without {layers}: only their own process holds them"
        remedy = "Serve from Linux where agents are not trusted."
        return [note("sandbox.jail_open", message, remedy, at)]
    message = f"scripts run without {layers}: one layer less between a script and this machine"
    remedy = (
        "Use a kernel with Landlock (5.13 or newer) and seccomp, and a container policy that "
        "allows them."
    )
    return [warning("sandbox.jail_open", message, remedy, at)]


def check_token(config: Config, locations: ConfigLocations) -> Iterator[DoctorFinding]:
    """Check for an endpoint that would be open to everybody, or to nobody."""
    secret = config.gateway.token
    token = secret.get_secret_value() if secret is not None else None
    try:
        check_exposure(config.gateway.host, token, has_others=bool(config.auth))
    except ConfigError as error:
        kind = "endpoint.token_weak"
        if token is None:
            kind = "endpoint.no_token"
        elif not token.strip():
            kind = "endpoint.token_empty"
        yield broken(
            kind,
            error.message,
            "export PORTICO_TOKEN=$(openssl rand -hex 32)  or write gateway: {host: 127.0.0.1}",
            locations.locate("gateway", "host" if token is None else "token"),
        )


def check_port(
    config: Config, locations: ConfigLocations, running: RunningGateway | None
) -> list[DoctorFinding]:
    """Try to listen, unless the gateway `running` serves this configuration already."""
    host = config.gateway.host
    port = config.gateway.port
    if port == 0:
        return []
    at = locations.locate("gateway", "port")
    if running is not None:
        return [
            note(
                "endpoint.running",
                f"the gateway of this configuration serves on {running.registration.url}",
                "`portico serve` need not be started again.",
                at,
            )
        ]
    try:
        bind_socket(host, port).close()
        return []
    except ConfigError as error:
        host_at = locations.locate("gateway", "host")
        return [broken("endpoint.host", error.message, error.advice, host_at)]
    except PorticoError as error:
        if "already in use" not in error.message:
            return [broken("endpoint.port_forbidden", error.message, error.advice, at)]
    other_port = port + 1 if port < 65535 else 8420
    message = f"port {port} on {host} is taken, maybe by the gateway of another configuration"
    remedy = f"portico serve --port {other_port}, or gateway: {{port: …}}."
    if "port" not in config.gateway.model_fields_set:
        return [
            note(
                "endpoint.port_taken",
                message,
                f"`portico start` takes another by itself; {remedy}",
                at,
            )
        ]
    return [
        broken(
            "endpoint.port_taken",
            f"{message}, so `portico serve` cannot start",
            f"Choose another one: {remedy}",
            at,
        )
    ]
