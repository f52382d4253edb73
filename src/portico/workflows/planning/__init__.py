"""Planning: turns an intent in plain words, and inputs, into a workflow. No tool is called here.

planner: entry point · argument_reader: clauses, tools and arguments, by two small networks
clause_search: tools for each clause · said_words, argument_sequence: what is read
parameters: where values may go
tool_choice: one tool per clause · assignment: values to parameters · step_builder: the steps, and
what is missing · name_matching, values, joins: names, conversions, results of earlier steps
plan_memory: which tools did an intent together
"""
