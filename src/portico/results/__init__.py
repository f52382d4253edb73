"""Large results: stored, summarised, and read in parts.

handles       fits a result to its budget: bodies (what to store), summary, store
reader        `read_result`: grep, path_selection, path_interpreter (JMESPath); both services
learned_shapes, shape   structure of a tool's results
result_meta   notes of the gateway in a result's `_meta`
"""
