"""Upstream: the servers behind the gateway, each a `Backend` that can be connected to and asked.

backend (the contract) · stdio, http, sse (MCP over three transports) · openapi (an HTTP API by its description) ·
commands (command-line programs) · functions, recorded (in-process) · envelope, handshake (what the two protocol eras
put around a message) · jsonrpc, jsontext, json_values, json_windows, json_pieces, text_pieces (frames, ids and text) ·
peer (request and answer over a duplex pipe) · lines, process, descriptors, own_thread, own_interpreter (the operating
system) · wire, eventstream (HTTP) · factory (from configuration to backend) · life (one per server: states,
single-flight start, stop) · supervisor (which looks after it) · breaker, health, memory, starts (when to start, ask,
replace it) · instances, opening, leaving, status (its parts) · error_mask (secrets in what a failing server says)

Everything here carries raw dicts; nothing an upstream says is trusted or interpreted beyond the JSON-RPC frame.
"""
