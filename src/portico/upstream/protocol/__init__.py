"""JSON-RPC and the two protocol eras, for every transport.

jsonrpc             frames, ids, and responses to a server's own requests
session             requests, responses, cancellation and progress over a duplex pipe
handshake           era detection and `initialize`
envelope            params of each era; pure
subscription        change notifications of a modern server
url_elicitations    which client was sent to which address
notification_queue  progress and log messages of one call, in order
deadline            timeouts of one request
token_bucket        rate limit
"""
