"""Command-line programs as tools: typed arguments in, printed output out. Never uses a shell.

definitions   a command → its tool definition; pure
arguments     call arguments → checked texts; pure
command_line  texts → the words of the command; pure
program       words → output and exit code
results       output and exit code → a tool result; pure
backend       all of it as a backend
"""
