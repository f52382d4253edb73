"""Warm worker processes, jailed, for languages whose engines are not trusted.

In the gateway: pool → script_run (one script on one worker) → process (start, frames, kill).
In the worker: main → jail (landlock, seccomp), then the runtime of `lua` or `javascript`.
Between them: protocol.
"""
