"""JSON-RPC and the two protocol eras, for every transport.

jsonrpc             frames, ids and errors; one request in flight with its deadline
session             the one connection class: requests, responses, cancellation, progress
server_requests     requests that the server sends; which client was sent to which address
handshake           era detection and `initialize`
envelope            params of each era; pure
extensions          what each side declares beyond the protocol, and what both agree on; pure
subscription        change notifications of a modern server
"""
