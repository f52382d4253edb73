"""Usage of tools: calls, tiers, tokens shown, and what searches led to.

tool_usage, statistics      calls, latency, success
token_ledger                tokens that clients were shown and saved
tool_tiers                  how much a tool matters here; a snapshot ranked by use
learner                     which tool was called after which search
recorder                    writes all of it to the store, in batches
"""
