"""The sandbox: scripts of four languages that call tools, each run within its limits, none inside
the gateway.

script (the facts that every engine shares) · calling (the calls a script has under way; none
outlives it) python/ (pydantic-monty, in worker processes of its own) · worker/ (our own warm
processes, jailed) → lua/, javascript/
"""
