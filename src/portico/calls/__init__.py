"""The call pipeline, which runs every tool call: of clients, scripts, workflows and the library.

pipeline      composes the middlewares; call is what passes through them
call_recorder                         span, event and audit line of a call
definition_tracker                    changes of definitions since a caller saw them
validation, schema_cost, schema_rules, repair   arguments that fit the schema
cache                                 cached results
dispatcher                            limits, further attempts, the request itself
elicitation, elicitation_labels       requests of a server to its caller, under its name
"""
