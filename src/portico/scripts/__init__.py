"""Scripts that call tools: what a script's words mean here, and how it is run, helped and
remembered.

scripts (one script, from its text to how it ended) → binding (which tools it means) · engines (who
runs which language, and whose turn it is) · memory (`store` and `load`) · hints (what to do about
the usual mistakes)
"""
