"""Our own warm worker processes, for languages whose engines cannot be trusted with anything.

In the gateway: pool → running (one script on one worker) → process (starting, frames, killing) ·
wire (what is said) In the worker: inside (its main) → jail (what it may do) → landlock, seccomp;
then a runtime of `lua` or `javascript`
"""
