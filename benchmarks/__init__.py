"""Benchmarks: what Portico costs, each figure beside a peer or a floor measured in the same run.

    python -m benchmarks.latency        a call: direct, byte relay, Portico, FastMCP; HTTP and stdio, both eras
    python -m benchmarks.startup        spawn of `portico stdio` → first search answer, beside `import mcp`
    python -m benchmarks.neighbours     calls to a healthy server while its neighbours are slow, silent, dead or noisy
    python -m benchmarks.fleet_tokens   tokens of a real fleet's listing, and what a client pays through Portico
    python -m benchmarks.retrieval      whether search finds the right tool, beside FastMCP's search
    python -m benchmarks.search_scale   how search grows with the catalog

Each prints a table. `--json FILE` keeps it, `--smoke` is a run of seconds, `--check` fails when a goal is missed by
more than its tolerance. Absolute times are this machine's, in this minute; only ratios travel.

table (how results look) · rounds (contestants take turns; ratios within a round) · processes (what runs, and ends) ·
peers (the programs beside Portico) · fleet (recorded servers as a configuration) · tool_sets (questions with answers)
"""
