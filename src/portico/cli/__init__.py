"""Cli: the command `portico`. Each command is a thin hand on the rooms behind it; none of them decides anything.

main       the way in; `stdio` starts from here without what only people need
commands, figures, setting_up, options   every command and option as a person sees them
opening    flags, environment and files → a configuration, and a gateway over it
running    loops and signals: how long a command lasts
ending     exit codes, and errors as advice
columns, wording                   rows of figures
screen     stdout for answers, stderr for everything else; text, or JSON with --json
logs       log lines on stderr, nothing secret in them
stdio, serve                       the two doors
reloading  the files of a configuration, followed while a door is open
restart, beside                    the running gateway, asked by another command
doctor     what is wrong with a set-up, and how to mend it
audit      the log of calls
exporting  spans, sent where the environment says
discover, call, arguments          search, browse, describe, call
effective, status                  what is configured, what is running
tokens, tiers_served               what it costs
usage, tiers                       what was used
adopting, adoption_report, installing  servers of clients moved behind Portico, and clients pointed at it
walk       the demo
"""
