"""Usage of tools: calls, tiers, tokens shown, and what searches led to.

tool_usage, statistics         calls, latency, success
token_ledger                   tokens that clients were shown and saved
tiers, standings, popularity   how much a tool matters here
ranked_catalog, usage_data     a snapshot ranked by use; everything known of use
learner → session_activity, pending_counts   which tool was called after which search
recorder                       writes all of it to the store, in batches
"""
