"""Text that a model reads. Pure: facts in, text within its budget out.

tool → typed_form, condensed_text, prose, docstring     a tool in one line, typed, or in full
examples, script_example, strict_definitions           calls and definitions made from schemas
token_count, budget, cursor, list_page, listing_cost   token counts, packing and paging
tool_result, call_notes, lines, script_report, workflow_report
"""
