"""Rules: who may do what, over callers, tools, resources, prompts and arguments. Pure.

decision: what was decided about a request, and by which rule
rules: the one predicate, for all rules and for those of one caller
compiled_rule: one rule · name_index: which rules a name need not be compared with
target: what a request is about · patterns: globs over names and callers
explanation: which rule decides, and which came close
conditions: `when`, as a JSON Schema · approver: what a rule that asks needs
"""
