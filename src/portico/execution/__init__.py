"""Execution: doing. One pipeline for every way a tool is run: validate → backend → record.

call (the pipeline) · validation (do these arguments fit?) · headers (arguments a modern server wants as HTTP headers)
"""
