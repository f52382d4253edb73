"""Execution: doing. One pipeline for every way a tool is run: validate → cache → backend → learn → record.

call (the pipeline) · validation (do these arguments fit?) · headers (arguments a modern server wants as HTTP headers)
cache (answers kept for a while, asked once at a time) · learned (what tools are seen to answer) → shape
looking (`view="shape"`) · large → handles (results that fit their budget) → bodies, summary, results (the store)
large → reader (`read_result`, the resource) → reading, selecting · json_stream, sampling, garbage (large JSON)
"""
