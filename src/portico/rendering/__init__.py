"""Text that a model reads. Pure: facts in, text within its budget out.

tool → typed_form, condensed_text, prose, docstring   a tool in one line, typed, or whole
examples, script_example, strict_definitions
token_count, budget, cursor, list_page, listing_cost   what fits, and where it goes on
tool_result, call_notes, lines, script_report, workflow_report
"""
