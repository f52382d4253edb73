"""REST API: the tiers, servers and usage as JSON, for programs and people that do not speak MCP.

It shows what clients of the default profile see, calls tools for its callers, and can restart a
server. The only package that imports FastAPI; `portico stdio` never loads it.

app               composes the application, its OpenAPI and its page for people
tool_routes, server_routes, call_routes, daily_routes, event_routes, key_routes   the routes
gateway_services  what the routes use of the gateway, beside the view of a profile
event_feed        what happens in the gateway, for all who listen
params, json_body query parameters and bodies with their limits; pages within a token budget
models, activity_models   models of the answers
tiers             content of the answers
responses         rendered bodies and ETags, error responses
"""
