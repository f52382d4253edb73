"""Versions of what Portico runs on, the model behind search, and how many files it may open."""

import asyncio
import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from portico import __version__
from portico.cli.doctor.finding import Finding
from portico.disclosure.tokens import best_counter
from portico.search import EncoderUnavailable, shipped_encoder

_PER_SERVER, _OURS = 8, 128
"""Descriptors: three pipes and a little more a server; sockets of clients, files, sandboxes."""


def about() -> dict[str, str]:
    """What is installed here."""
    return {
        "portico": __version__,
        "python": platform.python_version(),
        "mcp": _version("mcp"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "tokens": best_counter().name,
    }


async def search() -> list[Finding]:
    """Whether tools can be found by meaning."""
    encoder = shipped_encoder()
    try:
        await asyncio.to_thread(encoder.load)
    except EncoderUnavailable as error:
        said = f"tools are found by words only, not by meaning: {error}"
        return [Finding("search.words_only", "warning", said, "pip install --force-reinstall portico-mcp")]
    return []


def limits(servers: int) -> Iterator[Finding]:
    """Whether the system lets this process have as many files open as its servers need."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OURS + _PER_SERVER * servers
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = "" if hard == resource.RLIM_INFINITY or hard >= wanted else f" (the most here is {hard})"
        yield Finding(
            "files.limit_low",
            "warning",
            f"this user may have {soft} files open, and {servers} servers need about {wanted}",
            f"ulimit -n {max(wanted, 4_096)}{most}",
        )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
