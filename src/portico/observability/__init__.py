"""What happened: use of every tool, and the tokens that clients were shown. Listens to events, writes in batches.

statistics (pure sums) · usage (hears calls, knows how each tool does) · ledger (hears answers, knows what they cost) ·
keeper (the one task that writes both)
metrics (what a scrape shows) → tally (sums of what is heard), sources (gauges, read when somebody looks), lag (of the
event loop), exposition (all of it in Prometheus' words, loaded by the first scrape)
audit (a line for every call) → audit_chain (MACs that show whether lines were changed)
"""
