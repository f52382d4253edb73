"""The tools of the gateway itself, in place of those of every server.

tool_definitions, arguments, instructions, capability_index   what an agent sees of them
search_tools → search_request, search_page, no_match, search_explanation
browse_tools, describe_tools
code_tools → runtimes, script_builtins   `run_code` and `run_workflow`, loaded when used

`call_tool` and `read_result` are in `profiles/tools.py`, beside tools called by flat name.
"""
