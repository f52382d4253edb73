"""Checks the search model and the limit of open files, and collects versions."""

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
"""File descriptors: about three pipes a server; client sockets, files and sandboxes."""


def collect_versions() -> dict[str, str]:
    """Return the installed versions."""
    return {
        "portico": __version__,
        "python": platform.python_version(),
        "mcp": _get_version("mcp"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "tokens": get_best_counter().name,
    }


async def check_search_model() -> list[DoctorFinding]:
    """Check that the encoder of semantic search loads."""
    encoder = shipped_encoder()
    try:
        await asyncio.to_thread(encoder.load)
    except EncoderUnavailable as error:
        message = f"tools are found by words only, not by meaning: {error}"
        return [
            DoctorFinding(
                "search.words_only", "warning", message, "pip install --force-reinstall portico-mcp"
            )
        ]
    return []


def check_open_file_limit(server_count: int) -> Iterator[DoctorFinding]:
    """Check that the limit of open files suffices for the servers."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OWN_FILES + _FILES_PER_SERVER * server_count
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard == resource.RLIM_INFINITY or hard >= needed:
            limit_note = ""
        else:
            limit_note = f" (the most here is {hard})"
        yield DoctorFinding(
            "files.limit_low",
            "warning",
            f"this user may have {soft} files open, and {server_count} servers need about {needed}",
            f"ulimit -n {max(needed, 4_096)}{limit_note}",
        )


def _get_version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
