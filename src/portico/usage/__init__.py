"""What use shows: how tools are called, how much they matter, and what searches led to.

tool_usage, statistics         calls, latency, success
token_ledger                   tokens that clients were shown and saved
tiers, standings, ranked_catalog, popularity, usage_data   how much a tool matters here
learner → session_activity, pending_counts   which tool was called after which search
recorder                       writes all of it to the store, in batches
"""
