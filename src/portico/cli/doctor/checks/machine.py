"""Versions of what Portico runs on, the model behind search, and how many files it may open."""

import asyncio
import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from portico import __version__
from portico.cli.doctor.finding import DoctorFinding
from portico.rendering.token_count import get_best_counter
from portico.search import EncoderUnavailable, shipped_encoder

_FILES_PER_SERVER = 8
_OWN_FILES = 128
"""Descriptors: three pipes and a little more a server; sockets of clients, files, sandboxes."""


def collect_versions() -> dict[str, str]:
    """What is installed here."""
    return {
        "portico": __version__,
        "python": platform.python_version(),
        "mcp": _get_version("mcp"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "tokens": get_best_counter().name,
    }


async def check_search_model() -> list[DoctorFinding]:
    """Whether tools can be found by meaning."""
    encoder = shipped_encoder()
    try:
        await asyncio.to_thread(encoder.load)
    except EncoderUnavailable as error:
        said = f"tools are found by words only, not by meaning: {error}"
        return [
            DoctorFinding(
                "search.words_only", "warning", said, "pip install --force-reinstall portico-mcp"
            )
        ]
    return []


def check_open_file_limit(server_count: int) -> Iterator[DoctorFinding]:
    """Whether the system lets this process have as many files open as its servers need."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OWN_FILES + _FILES_PER_SERVER * server_count
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard == resource.RLIM_INFINITY or hard >= wanted:
            most = ""
        else:
            most = f" (the most here is {hard})"
        yield DoctorFinding(
            "files.limit_low",
            "warning",
            f"this user may have {soft} files open, and {server_count} servers need about {wanted}",
            f"ulimit -n {max(wanted, 4_096)}{most}",
        )


def _get_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
