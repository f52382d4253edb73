"""Warm worker processes, jailed, for languages whose engines are not trusted.

In the gateway: the pool in `scripts/engines.py` → script_run (one script on one worker) → process
(start, frames, kill).
In the worker: main → jail (Landlock, limits; seccomp), then the runtime: lua (lua_values) or
javascript (javascript_source), with the functions of prelude.lua or prelude.js.
Between them: protocol.
"""
