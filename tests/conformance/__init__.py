"""The official conformance suite, run against our fixture server directly and through Portico,
compared check by check.

    python -m tests.conformance --node-dir DIR [--install] [--spec 2026-07-28|2025-11-25] [--direct-only] [--json FILE]

checks (what the suite said, pure) → comparison (what got lost on the way, pure) → report; suite
(Node and the npm package) and processes (fixture, gateway) do the I/O; run puts them together.
"""  # noqa: E501
