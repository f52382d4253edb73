"""Streamable HTTP: the ASGI application and its middlewares.

app                  composes the application and the uvicorn server
endpoints            one endpoint for each profile, both protocol eras, and their sessions
json_first_transport, replay   transport of handshake-era sessions, resumable streams
auth, auth_failures, callers   authentication, and the quota a request counts against
body_limit, slow_clients       bounds on request bodies and on connections
spooled_responses, large_values   unread responses on disk, large values in pieces
monitoring           health, readiness and metrics
lazy_app             the REST application, built on first use
"""
