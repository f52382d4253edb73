"""Disclosure: what to show. Decides in pure functions; only `view` and `searching` await.

metatools (the few tools an agent sees) · arguments (what models pass them) · question, searching (what is looked for,
on whose behalf) · results, misfit, explain (what a search answers, that nothing fits, why it ranked so) · discovery
(browse and describe over one snapshot) · render, example (brief, schema, full) · lines, tokens, budget, cursor (an
answer fits, and says how to go on) · answer (results and errors as a model reads them) · guidance (what the agent is
told first) · listable (a definition as strict clients take it) · namespace (resources and prompts of many servers under
one roof) · view (one profile's face to its clients)
"""
