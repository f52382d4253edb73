"""One profile's view of the catalog: its responses to every MCP method about tools, resources and
prompts.

view → tools, resources, prompts   the gateway's own
view → passthrough                 those of servers, under distinct names
profile_state     what the profile sees now: snapshot, scope, tiers
state_handles     handles for clients without a session
relevant_tools    tools selected for an intent or a query
json_objects      tools, categories, servers and use as data
first_listing     which requests wait for servers that were never listed
"""
