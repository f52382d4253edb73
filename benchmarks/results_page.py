"""RESULTS.md: each benchmark's block under its heading, put there by the benchmark itself. Pure.

Words between a heading and its block are people's, and stay.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "RESULTS.md"
_BLOCK = re.compile(r"^```\n.*?^```\n", re.DOTALL | re.MULTILINE)


def place_report(page: str, benchmark: str, report: str, circumstances: Mapping[str, Any]) -> str:
    """The page with this report in place of the one before; a benchmark that is new comes last."""
    block = f"```\n{_measured_with(circumstances)}\n\n{report.strip()}\n```\n"
    heading = f"## `python -m benchmarks.{benchmark}`\n"
    begin = page.find(heading)
    if begin < 0:
        return f"{page.rstrip()}\n\n{heading}{block}"
    begin += len(heading)
    end = page.find("\n## ", begin)
    section = page[begin : end if end >= 0 else len(page)]
    found = _BLOCK.search(section)
    written = (
        section[: found.start()] + block + section[found.end() :]
        if found
        else f"{section.rstrip()}\n{block}"
    )
    return page[:begin] + written + (page[end:] if end >= 0 else "")


def _measured_with(circumstances: Mapping[str, Any]) -> str:
    # Where a file lies is nobody's business.
    words = [Path(word).name if "/" in word else word for word in circumstances["command"][1:]]
    given = " ".join(word for word in words if word != "--results")
    versions = ", ".join(
        f"{name} {version}" for name, version in circumstances["versions"].items() if version
    )
    machine = (
        f"{circumstances['platform']}, {circumstances['cpus']} CPUs, Python "
        f"{circumstances['python']}"
    )
    return f"{circumstances['when'][:16]} · {machine} · {versions}" + (
        f" · {given}" if given else ""
    )
