"""Command-line programs as tools: typed arguments in, what the program printed out. No shell
anywhere.

listing (a command → its tool definition) · checking (arguments → texts) · filling (texts → the
program's words) running (words → what it printed, its exit code) · answering (that → a result) ·
backend (all of it, as a server)
"""
