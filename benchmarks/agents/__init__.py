"""Measures what an agent needs to do a person's tasks: calls, tokens, and whether they are done.

`tasks.jsonl` holds the tasks with the calls that do them, over the recorded fleet; `inputs.jsonl`
the same tasks as an agent passes them to `run_workflow(intent, inputs)`.
"""
