"""JSON-RPC and the two protocol eras, for every transport.

session (requests, answers, cancellation over a pipe) · jsonrpc (frames) · handshake · envelope
(params of each era) subscription (what a modern server announces) · url_elicitations ·
notification_queue · deadline · token_bucket
"""
