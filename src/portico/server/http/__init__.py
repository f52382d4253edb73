"""Streamable HTTP: the ASGI application and its middlewares.

app → endpoints (one for each profile, both protocol eras) → json_first_transport, replay
auth, auth_failures, callers        who may send requests, and whose share a request takes
body_limit, slow_clients, spooled_responses, large_values   what is too large, too slow or unread
monitoring, lazy_app                health and metrics; the REST application, made when first used
"""
