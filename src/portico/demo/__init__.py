"""Eight small demo servers of plain Python functions, to try Portico before anything is configured.

Standard library only, no network, no files. One module for each server: calculator, text, clock,
units, data, notes, colors, and chance (the server `random`); tool_factory makes the tools.
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
    """Return the configuration of the demo servers by name."""
    return {
        name: BackendConfig(
            type="functions",
            functions=f"portico.demo.{module}:TOOLS",
            description=description,
            tags=(tag,),
            # They cost nothing to start, and a new version's tools are listed at once.
            start="boot",
        )
        for name, (module, description, tag) in _SERVERS.items()
    }
