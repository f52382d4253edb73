"""Streamable HTTP: the ASGI application and its middlewares.

app                  composes the application and the uvicorn server
endpoints            one endpoint for each profile, both protocol eras, and their sessions
json_first_transport transport of handshake-era sessions, resumable streams
auth                 authentication, callers, and the quota a request counts against
body_limit, slow_clients       bounds on request bodies and on connections
monitoring           health, readiness and metrics
spooled_responses, large_values   unread responses on disk, large values in pieces
"""
