"""What happened: use of every tool, and the tokens that clients were shown. Listens to events, writes in batches.

statistics (pure sums) · usage (hears calls, knows how each tool does) · ledger (hears answers, knows what they cost) ·
keeper (the one task that writes both)
"""
