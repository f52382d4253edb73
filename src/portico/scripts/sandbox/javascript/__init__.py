"""JavaScript and TypeScript scripts, inside a worker.

runtime (one script, in a fresh context) → prelude.js (what a script finds) · ending (the last
expression) quickjs (the engine) · typescript → vendored/ (Sucrase, which takes the types out)
"""
