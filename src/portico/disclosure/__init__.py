"""Disclosure: what to show. Decides in pure functions; only `view` awaits.

metatools (the few tools an agent sees) · arguments (what models pass them) · discovery (search, browse, describe over
one snapshot) · render, example (brief, schema, full) · tokens, budget, cursor (an answer fits, and says how to go on) ·
answer (results and errors as a model reads them) · guidance (what the agent is told first) · listable (a definition as
strict clients take it) · namespace (resources and prompts of many servers under one roof) · view (one profile's face to
its clients)
"""
