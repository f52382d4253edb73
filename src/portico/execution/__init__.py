"""Execution: doing. One pipeline for every way a tool is run, and what runs more than one.

pipeline (put together) → call (the way of one call) → origin (whose request it is) · changes, definition_changes (is it
still the tool that was seen?) · validation, schema_cost, repair, misnamed (arguments that fit) · cache · limiting ·
retrying · learned → shape, shape_text · marks (what is said of a result) · headers (arguments a modern server wants as
HTTP headers) · questions, question_labels (what a server asks its caller, and under which name)
large → handles (results that fit their budget) → bodies, summary, results (the store) · looking (`view="shape"`)
large → reader (`read_result`, the resource) → reading, selecting, path_interpreter (JMESPath)
json_stream, sampling, letting_go (large JSON)
means (what does more than one call) → scripting/ → sandbox/ · workflow/
"""
