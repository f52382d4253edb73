"""Lua 5.4 runtime of a worker.

runtime           runs one script in a fresh state
prelude           functions available to a script, written in Lua
values            conversion between JSON values and Lua values
last_expression   returns the value of a script's last expression
"""
