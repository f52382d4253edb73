"""Handling of one client request, from its admission to its answer.

admission         rate limits, concurrency limits and queues
multi_round       elicitation of modern clients, over several requests; uses request_task,
                  pending_requests and state_signer
client_relay      progress, log messages and elicitation back to the client; uses elicitation
envelope          fields that each era requires around a result
wire_json         what can be encoded as JSON
spans             tracing
"""
