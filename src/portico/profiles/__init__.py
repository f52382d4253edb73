"""One profile's view of the catalog: its responses to every MCP method about tools, resources and
prompts.

view → tools, resources, prompts, completion       the gateway's own
view → upstream_offers, namespace, result_links    those of servers, under distinct names
profile_state        what the profile sees now: snapshot, scope, tiers
state_handles        handles for clients without a session
relevant_tools       tools selected for an intent or a query
listing_cost_counter, tool_details, cards, statistics_card
"""
