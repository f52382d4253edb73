"""The command `portico`.

main                              entry point; `stdio` and `serve` skip the option parser
command_table, options            every command with its module; options that commands share
serve_commands, look_commands     declarations of commands whose work is imported when they run
commands/                         the work of each command
setup                             flags, environment and files → a configuration and a gateway
config_watcher, serving_process   services of a running gateway
local_gateway/                    the gateway that already runs: found, asked, bridged to
streams, screen, columns, exit    output and exit codes
logs, log_renderer                log lines, and the log of a gateway without a terminal
tier_costs                        part of `tokens`
adoption_report, client_entry     parts of `adopt` and `install`
doctor/                           the checks of `doctor`
"""
