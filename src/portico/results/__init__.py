"""Large results: stored, summarised, and read in parts.

services → handles (a result within its budget) → bodies, summary, store
services → reader (`read_result`) → grep, path_selection, path_interpreter (JMESPath)
learned_shapes → shape, shape_json, value_sample   what a tool's answers look like
marks        what Portico notes in a result's `_meta`
"""
