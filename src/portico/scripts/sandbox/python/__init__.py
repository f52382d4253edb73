"""Python scripts, on pydantic-monty: an interpreter that has no way out, in worker processes of its
own.

engine (the pool, one script after another in each) → conversation (one script's turns, in a thread)
→ prelude (what a script finds) · crossing (values as JSON text) · faults (what went wrong) ·
backstop (the system's limits) launcher, boot (each worker process starts inside the jail)
"""
