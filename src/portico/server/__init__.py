"""MCP towards clients, over HTTP and stdio.

profile_endpoint   one SDK server for each profile; answers every request with raw dicts
http/              the ASGI application
stdio              stdin and stdout of this process
request            the request, its validation and span, its result in each era
admission          rate limits, concurrency limits and queues
pending_requests   rounds of elicitation with modern clients; uses state_signer
client_relay       progress, log messages and elicitation to the client
sessions           registries of sessions and subscriptions, change notifications
subscriptions      resource subscriptions of both eras
line_reader        lines of bounded length; timer for clients that do not read
"""
