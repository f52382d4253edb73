"""The page of results, as benchmarks write it."""

from benchmarks.results_page import place_report

WITH = {
    "when": "2026-11-16T08:00:00+00:00",
    "command": ["latency", "--servers", "/somewhere/servers.jsonl.gz", "--results"],
    "python": "3.11.7",
    "platform": "Linux",
    "cpus": 2,
    "versions": {"mcp": "2.3.0", "fastmcp": None},
}
PAGE = """# Results

## `python -m benchmarks.latency`
Words that stay.

```
old
```
And these.

## `python -m benchmarks.tokens`
```
other
```
"""


def test_a_report_replaces_the_one_before_and_nothing_else() -> None:
    page = place_report(PAGE, "latency", "new\n", WITH)
    said = (
        "2026-11-16T08:00 · Linux, 2 CPUs, Python 3.11.7 · mcp 2.3.0 · --servers servers.jsonl.gz"
    )
    assert page == PAGE.replace("old\n", f"{said}\n\nnew\n")
    assert place_report(page, "latency", "new", WITH) == page


def test_a_new_benchmark_comes_last() -> None:
    page = place_report(PAGE, "peers", "table", WITH)
    assert page.startswith(PAGE)
    assert page.endswith("table\n```\n")
    assert "## `python -m benchmarks.peers`" in page


def test_a_heading_without_a_block_gets_one() -> None:
    page = place_report(
        "## `python -m benchmarks.latency`\nWords.\n\n## Next\n", "latency", "table", WITH
    )
    assert page.index("Words.") < page.index("table") < page.index("## Next")
