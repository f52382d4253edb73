"""Disclosure: what to show. Most of it is pure: what is known goes in, text that fits its budget comes out.

view         one profile's face: every method of the protocol → toolbox (tools) · resources, prompts, completion (ours)
             · offers, namespace, links (those of many servers under one roof) · pages (long lists)
sight        what a profile sees now → shelves (hot list, categories, order) ← tiers, standings, popular, insight (use)
tools        metatools (the few an agent sees) · arguments (what models pass them) · listable (a tool as strict clients
             take it)
finding      question → searching → results · misfit (nothing fits) · explain (why it ranked so)
looking      discovery (overview, servers, categories) · describing (tools by name, in parts) ← extras
a tool       render (brief, schema, full) ← typed, shorten, docstring, prose (its words) · example, script (calls of it)
as data      cards · statistics_card
what fits    tokens (counts) · budget (packs, cuts) · cursor (goes on) · lines (what answers share) · answer (marks)
beside       guidance (what the agent is told first) · cost, counting (what listing everything would take)

Only view, toolbox, offers, namespace, prompts, searching, standings and counting await.
"""
