"""The call pipeline, which runs every tool call: of clients, scripts, workflows and the library.

services      builds the pipeline from the configuration
pipeline      runs one call; context is its caller and options, outcome the word for how it ended
definition_tracker, definition_diff               changes of definitions since a caller saw them
validation, schema_cost, repair, argument_names   arguments that fit the schema
cache, server_limiter, retry                      cached results, limits, further attempts
elicitation, elicitation_labels                   requests of a server to its caller, under its name
param_headers, shape_view                         headers of a modern server, `view="shape"`
"""
