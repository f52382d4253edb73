"""Text that a model reads. Pure: facts in, text within its budget out.

one_line_tool                                    a tool in one line
tool → typed_form, condensed_text, prose         a tool typed, or in full
examples, strict_definitions, resource_uris      calls and definitions made from schemas
token_budget, cursor, listing_cost               token counts, packing and paging
tool_result, server_lines, workflow_report
"""
