"""The servers behind the gateway.

backend        the contract: `Backend` opens a `Connection`; requests and results are raw dicts
backends/      what a server can be: a process, a URL, an HTTP API, command-line programs, functions
transports/    stdio, Streamable HTTP, SSE
protocol/      JSON-RPC and the two protocol eras
lifecycle/     start, health, circuit breaker, restart, stop
error_mask     masks configured secrets in what servers say

Nothing a server says is trusted, or interpreted beyond its JSON-RPC frame.
"""
