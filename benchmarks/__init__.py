"""Benchmarks: what Portico costs, each figure beside a peer or a floor measured in the same run.

    python -m benchmarks.latency        a call: direct, byte relay, Portico, FastMCP; HTTP and stdio, both eras
    python -m benchmarks.startup        spawn of `portico stdio` → first search answer, beside `import mcp`
    python -m benchmarks.shared         one gateway for all clients: `portico search`, bridges, memory of eight clients
    python -m benchmarks.neighbours     calls to a healthy server while its neighbours are slow, silent, dead or noisy
    python -m benchmarks.faults         the same for every fault of the matrix in tests/faults, one server for each
    python -m benchmarks.stalls         a hostile client and a hostile server beside a polite client, 171 inputs:
                                        longest pause of the event loop, the polite client's p99,
                                        memory;
                                        with --faults how long the loop stands still for each of
                                        those faults
    python -m benchmarks.load           1 … 256 clients at once, beside a byte relay and FastMCP's proxy; then a flood
    python -m benchmarks.soak           minutes of chaos: every answer accounted for, memory and descriptors watched
    python -m benchmarks.endurance      100,000 calls: time, memory and objects held, single flight
    python -m benchmarks.tokens         what servers cost in tokens: listed directly, through Portico, step by step
    python -m benchmarks.retrieval      whether search finds the right tool, by set and style, beside FastMCP's search;
                                        with --ablation what each part of search is worth
    python -m benchmarks.agents         what an agent needs for a person's task: by intent, by search and call, beside
                                        FastMCP's search; with --model a model plays it
    python -m benchmarks.peers          beside FastMCP, ContextForge, 1MCP and mcp-proxy: tokens, search, a call, start,
                                        memory, calls lost beside slow and dead servers; with
                                        --install it brings them
    python -m benchmarks.footprint      resident memory and search over the wire, with the fleet and 100,000 tools
    python -m benchmarks.rules          a decision, a list and a call under 0 … 1,000 rules
    python -m benchmarks.scale          how search grows with the catalog: build, load, memory, query, a changed server

Each prints a table. `--results` puts it into RESULTS.md, `--json FILE` keeps it, `--smoke` is a run
of seconds,
`--check` fails when a goal is missed by more than its tolerance. Absolute times are this machine's,
in this minute;
only ratios travel.

table (how results look) · results_page (RESULTS.md, by `--results`) · rounds (contestants take
turns; ratios within a round) · processes (what runs, and ends) · programs (those run beside
Portico) · hops, crowd (who stands between; sixteen at once) · picture, recording (the README's) ·
fleet (recorded servers as a configuration) · peering (other gateways, each in an environment of its
own) · hostile (a client and a server that mean harm, and what they send) · agents (tasks with the
calls that do them, and who does them)

Of search: tool_sets (questions with answers) · chosen_sets (which of them, our own in questions/
among them) · contestants (the searches that answer) · metrics (how good a ranking is) · ranks
(rankings as files) · ablation (search without a part of it) · synthetic (a catalog of any size) ·
scale_probe (the process that is measured) · vector_cache (tools are encoded once) · one_thread
(libraries that start no threads)
"""  # noqa: E501
