"""One request of a client, from its admission to its answer.

admission          rate limits, places and queues
multi_round → request_task, pending_requests, state_signer   elicitation for modern clients, over several requests
client_relay → elicitation          progress, log messages and elicitation back to the client
envelope, wire_json, spans          what each era wants around a result; what can be encoded; tracing
"""
