"""The tools of the gateway itself, in place of those of every server: one module for each.

search_tools (search_request, search_page, search_explanation), browse_tools,
describe_tools, call_tool (result_links), run_code and run_workflow (runtimes), read_result

tool_definitions, instructions: what an agent sees of them
"""
