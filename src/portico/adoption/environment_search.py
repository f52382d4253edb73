"""Finds the variables of this shell without which a server does not start, or does not work.

A server that fails with the default environment is tried once with all variables. If it starts
then, the fewest that it needs are found by halving. Only names are returned, never values.

Servers of a kind often start without a variable and fail when they are called: those variables are
known by the words in a command line.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from portico.catalog.listing import fetch_listing
from portico.config import BackendConfig, Config
from portico.config.inherited_environment import list_withheld
from portico.errors import PorticoError
from portico.upstream.backend import IgnoringListener
from portico.upstream.backends.factory import make_backend
from portico.upstream.transports.process import ProcessGuard

_AWS = (
    "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
)  # fmt: skip
_DOCKER = (
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY",
)  # fmt: skip
_GOOGLE = ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GOOGLE_CLOUD_PROJECT")
_SCREEN = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS")
_VARIABLES_BY_WORDS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("kube", "kubernetes", "kubectl", "k8s", "k9s", "helm", "argocd", "istio", "openshift"): (
        "KUBECONFIG",
    ),
    ("aws", "awslabs", "s3", "dynamodb", "cloudwatch", "bedrock", "eks", "ecs"): _AWS,
    ("docker", "podman", "compose", "testcontainers"): _DOCKER,
    ("git", "ssh", "sftp", "rsync", "ansible"): ("SSH_AUTH_SOCK",),
    ("google", "gcp", "gcloud", "bigquery", "firebase", "firestore", "vertex"): _GOOGLE,
    ("azure", "az"): ("AZURE_CONFIG_DIR",),
    ("playwright", "puppeteer", "browser", "chrome", "chromium", "firefox", "selenium",
     "devtools", "desktop", "clipboard"): _SCREEN,
}  # fmt: skip
"""Words of a server's name and command line → paths, names and sockets; no credentials."""
LIKELY_VARIABLES = tuple(
    dict.fromkeys(name for names in _VARIABLES_BY_WORDS.values() for name in names)
)
_SHELL_WORDS = frozenset(
    ("shell", "command", "commands", "commander", "terminal", "iterm", "tmux", "runner")
)
"""Words of servers that run the user's commands, which can be any of `ssh`, `docker`, `aws` …"""
_SHELL_PROGRAMS = frozenset(("cli-mcp-server",))
"""Such servers whose words say nothing, by their whole name."""
MAX_STARTS = 24
"""Starts of one server: enough for three of a hundred variables."""
SEARCH_S = 60.0
"""Seconds for one server."""
START_S = 20.0
"""Seconds for one start; less if the server's own `timeouts.start_s` is less."""
CLOSE_S = 10.0
MAX_CONCURRENT = 4
TryVariables = Callable[[Sequence[str]], Awaitable[bool]]


def list_likely_variables(
    name: str, server: BackendConfig, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the variables that are set here, likely needed by a server, and not passed on."""
    if not server.command:
        return ()
    text = " ".join((name, server.command, *server.args)).lower()
    words = set(re.split(r"[^a-z0-9]+", text))
    wanted = [
        variable
        for keys, variables in _VARIABLES_BY_WORDS.items()
        if words & set(keys)
        for variable in variables
    ]
    programs = set(re.split(r"[^a-z0-9-]+", text.replace("_", "-")))
    if words & _SHELL_WORDS or programs & _SHELL_PROGRAMS:
        wanted = list(LIKELY_VARIABLES)
    withheld = set(list_withheld(environ, server.inherit_env)) - set(server.env)
    return tuple(variable for variable in wanted if variable in withheld and environ[variable])


class SearchGivenUp(Exception):
    """The limit of starts or time was reached."""


@dataclass(frozen=True)
class NeededVariables:
    names: tuple[str, ...]
    is_certain: bool = True
    """False: it starts with all variables, but which ones it needs was not found in time."""


async def find_needed_variables(
    config: Config, failed: Collection[str], environ: Mapping[str, str]
) -> dict[str, NeededVariables]:
    """Return what each failed server needs; those that start with no environment are left out."""
    slots = asyncio.Semaphore(MAX_CONCURRENT)
    guard = ProcessGuard()

    async def search(name: str, server: BackendConfig) -> NeededVariables | None:
        async with slots:
            return await _search_server(name, server, config, guard, environ)

    servers = {
        name: server
        for name, server in config.servers.items()
        if name in failed and server.is_usable and server.command
    }
    try:
        found = await asyncio.gather(*(search(name, one) for name, one in servers.items()))
    finally:
        await asyncio.to_thread(guard.close)
    return {name: needed for name, needed in zip(servers, found, strict=True) if needed is not None}


async def _search_server(
    name: str,
    server: BackendConfig,
    config: Config,
    guard: ProcessGuard,
    environ: Mapping[str, str],
) -> NeededVariables | None:
    withheld = [
        variable
        for variable in list_withheld(environ, server.inherit_env)
        if variable not in server.env and not variable.startswith("PORTICO_")
    ]
    # Of several that would do, one that is known to matter is taken.
    candidates = [one for one in LIKELY_VARIABLES if one in withheld]
    candidates += [one for one in withheld if one not in candidates]
    deadline = time.monotonic() + SEARCH_S
    starts = 0

    async def starts_with(names: Sequence[str]) -> bool:
        nonlocal starts
        starts += 1
        remaining = deadline - time.monotonic()
        if starts > MAX_STARTS or remaining <= 0:
            raise SearchGivenUp
        changed = server.model_copy(update={"inherit_env": (*server.inherit_env, *names)})
        limit = min(START_S, server.timeouts.start_s, remaining)
        return await _can_start(name, changed, config, guard, limit)

    try:
        if not candidates or not await starts_with(candidates):
            return None
    except SearchGivenUp:
        return None
    try:
        return NeededVariables(await find_smallest_set(candidates, starts_with))
    except SearchGivenUp:
        return NeededVariables((), is_certain=False)


async def find_smallest_set(names: Sequence[str], is_enough: TryVariables) -> tuple[str, ...]:
    """Return the fewest of `names` that are enough, all of them together being so.

    Each costs as many attempts as `names` can be halved, and one.
    """
    needed: list[str] = []
    while not await is_enough(needed):
        # The shortest beginning that is enough ends with a variable that is needed.
        low = 0
        high = len(names)
        if not high:
            return ()  # it starts at one time and not at another: nothing can be said
        while high - low > 1:
            middle = (low + high) // 2
            if await is_enough([*needed, *names[:middle]]):
                high = middle
            else:
                low = middle
        needed.append(names[high - 1])
        names = names[: high - 1]
    return tuple(sorted(needed))


async def _can_start(
    name: str, server: BackendConfig, config: Config, guard: ProcessGuard, limit_s: float
) -> bool:
    backend = make_backend(name, server, config.limits, guard, persist=False)
    connection = None
    try:
        async with asyncio.timeout(limit_s):
            connection = await backend.connect(IgnoringListener())
            await fetch_listing(connection, server.timeouts.list_s)
        return True
    except (TimeoutError, PorticoError, OSError):
        return False
    finally:
        if connection is not None:
            with contextlib.suppress(TimeoutError, PorticoError, OSError):
                await asyncio.wait_for(connection.close(), CLOSE_S)
