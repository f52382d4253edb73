"""The sandbox: engines for scripts of four languages, each within limits and outside the gateway.

script        types that every engine shares; calls of a running script, of which none outlives it
python/       pydantic-monty in worker processes of its own
worker/       jailed warm processes for Lua and JavaScript
"""
