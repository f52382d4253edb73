"""Workflows: several tool calls as one request, each through the call pipeline.

runner: entry point · steps, references (`${step.path}`): parsing · validation: before anything runs
argument_checks, expected_values, lookalikes: parts of validation · limits: all limits
runs: stored runs that can be resumed · execution: one pass over a plan · call_results: values
report: outcome of each step · planning/: a plan from an intent
"""
