"""Four small demo servers of plain Python functions, to try Portico before anything is configured.

Standard library only, no network, no files. `clock.list_time_zones` has a large result,
`notes.delete_note` needs approval in a workflow.
"""

import re
from collections.abc import Callable
from typing import Any

from portico.config import BackendConfig
from portico.upstream.backends.functions import FunctionTool, make_function_tool

_SERVERS = {
    "clock": ("Dates, time zones, durations between dates and working days.", "time"),
    "notes": ("A notebook in memory: gone when the gateway stops.", "notes"),
    "text": ("Count, compare, clean and extract text.", "text"),
    "units": ("Convert and compare units of measure.", "math"),
}
_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")


def make_demo_servers() -> dict[str, BackendConfig]:
    """Return the configuration of the demo servers by name."""
    return {
        name: BackendConfig(
            type="functions",
            functions=f"portico.demo.{name}:TOOLS",
            description=description,
            tags=(tag,),
            # They cost nothing to start, and a new version's tools are listed at once.
            start="boot",
        )
        for name, (description, tag) in _SERVERS.items()
    }


def make_tool(
    title: str,
    function: Callable[..., Any],
    *,
    read_only: bool = True,
    destructive: bool = False,
    idempotent: bool = True,
) -> FunctionTool:
    """Make a tool whose annotations say what it changes."""
    annotations = {
        "title": title,
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": False,
    }
    tool = make_function_tool(function, annotations=annotations)
    # A paragraph of a docstring is wrapped in the source and is one line for clients.
    tool.definition["description"] = _LINE_BREAK.sub(" ", tool.definition["description"])
    return tool
