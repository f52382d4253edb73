"""The sandbox: scripts of four languages that call tools, each run within its limits, none inside the gateway.

script (the facts every engine shares) · calling (the calls a script has under way; none outlives it)
python (pydantic-monty, in its own worker processes)
workers → wire → worker (our own warm processes) → jail (what such a process may do) → lua, javascript ← typescript
"""
