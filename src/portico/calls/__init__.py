"""The call pipeline: every call of a tool goes through it, whoever makes it.

services (built from the configuration) → pipeline (one call) → context (its caller and options)
definition_tracker, definition_diff      has the definition changed since the caller saw it?
validation, schema_cost, repair, argument_names   arguments that fit the schema
cache, server_limiter, retry             kept answers, limits of a server, another attempt
elicitation, elicitation_labels          what a server asks its caller, under its name
param_headers, shape_view, outcome       headers of a modern server, `view="shape"`, how a call ended
"""
