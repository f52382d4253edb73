"""JavaScript and TypeScript runtime of a worker.

runtime           runs one script in a fresh context of quickjs, after prelude.js
last_expression   returns the value of a script's last expression
typescript        strips types with Sucrase (vendored/)
"""
