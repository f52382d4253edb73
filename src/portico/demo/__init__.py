"""Demo: eight small servers of plain Python functions, so that Portico can be tried before anything
is configured.

Standard library only, no network, no files. `servers` is their configuration, as a file would have
it. calculator · text · clock · units · data · notes · colors · random (in `chance`) · offer (a
function as a tool)
"""

from portico.config import BackendConfig

_SERVERS = {
    "calculator": (
        "calculator",
        "Exact arithmetic, statistics, interest and number theory.",
        "math",
    ),
    "clock": ("clock", "Dates, time zones, durations between dates and calendars.", "time"),
    "colors": ("colors", "Convert, mix, name and compare colours.", "design"),
    "data": ("data", "CSV, JSON, rows, hashes and encodings.", "data"),
    "notes": ("notes", "A notebook in memory: gone when the gateway stops.", "notes"),
    "random": ("chance", "Dice, choices, passwords and identifiers.", "random"),
    "text": ("text", "Count, compare, clean and extract text.", "text"),
    "units": ("units", "Convert units of measure; read and write durations and sizes.", "math"),
}


def make_demo_servers() -> dict[str, BackendConfig]:
    """The demo servers by name."""
    return {
        name: BackendConfig(
            type="functions",
            functions=f"portico.demo.{module}:TOOLS",
            description=description,
            tags=(tag,),
            # Nothing to start, and what a newer version offers shows at once.
            start="boot",
        )
        for name, (module, description, tag) in _SERVERS.items()
    }
