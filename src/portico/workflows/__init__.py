"""Workflows: several tool calls as one request, each through the call pipeline.

runner: entry point · steps, references (`${step.path}`): parsing · validation: before anything runs
expected_values: a part of validation
runs: stored runs that can be resumed · execution: one pass over a plan · step_calls: its calls
report: outcome of each step · planning/: a plan from an intent
"""
