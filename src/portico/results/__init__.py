"""Large results: stored, summarised, and read in parts.

services      builds the two services below
handles       fits a result to its budget: bodies (what to store), summary, store
reader        `read_result`: grep, path_selection, path_interpreter (JMESPath)
learned_shapes, shape, shape_json, value_sample   structure of a tool's results
marks         notes of the gateway in a result's `_meta`
"""
