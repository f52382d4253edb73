"""Planning: turns an intent in plain words into a workflow. No tool is called here.

planner: entry point · clauses: parts of an intent · tool_choice: one tool per clause
step_builder: steps and missing inputs · argument_values, literals: arguments from the words
joins, output_fields, name_parts: connects results to parameters · vocabulary: word lists
omissions: what the plan does not cover · plan_memory, templates: stored plans without user text
"""
