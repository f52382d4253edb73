"""Doctor: what is wrong with a set-up, where, and how it is mended. It looks, starts and asks, and
changes nothing.

finding        what is said about one fault
reading        files → a configuration as far as it can be understood, and what is wrong with them
configuration, credentials, secrets      what the configuration says: pure
commands, packages                       the programs that servers are started by
command_tools                            the programs that are tools themselves
descriptions                             what HTTP APIs are described by, and where their credentials go
visiting       every server is started, introduced and listed, all together
visits, remedies                         what those meetings showed, and what to do about it: pure
tools, rules, budgets                    what clients would reject, and what costs too much: pure
door, folders, database, sandbox, machine    the gateway's own house
examination    everything in order → a report
report         the report, for people or as JSON
"""
