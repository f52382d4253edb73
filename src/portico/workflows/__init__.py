"""Workflows: several calls as one request. Steps enter, a report leaves; every call goes through
the one pipeline.

workflows (start there) → steps, references (`${step.path}`) → checking (before anything runs) →
arguments (do they fit?), offered (what a step will answer), lookalikes (`{{step.path}}`) · limits
(of all that; light) runs (kept, to be continued) → running (a plan, once) → answers (what a call
came to) → report (what became of it) planning/ (a plan from an intent)
"""
