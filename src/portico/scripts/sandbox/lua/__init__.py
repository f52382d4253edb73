"""Lua 5.4 scripts, inside a worker.

runtime (one script, in a fresh state) → glue (what a script finds, written in Lua) · values (JSON
and tables) · answer (the last expression)
"""
