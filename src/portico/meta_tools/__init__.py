"""The tools of the gateway itself, in place of those of every server.

tool_definitions, arguments, instructions, capability_index   what an agent sees of them
search_tools → search_request, search_page, no_match, search_explanation browse_tools,
describe_tools
code_tools → runtimes (scripts and workflows, loaded when used), script_builtins   `run_code`, `run_workflow`

`call_tool` and `read_result` are in `profiles/tools.py`, beside the tools that clients call by flat name.
"""
