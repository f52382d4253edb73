"""The command `portico`.

main                              entry point; `stdio` and `serve` skip the option parser
command_table                     every command and option → report_commands, client_commands
options                           options and a runner that commands share
commands/, doctor/                what each command does
setup                             flags, environment and files → a configuration and a gateway
config_watcher, garbage_collector, signals, span_export   services of a running gateway
gateway_client                    REST client for a gateway that is already running
screen, columns, usage_format, exit   output and exit codes
logs, log_renderer                log lines
tool_arguments, tier_costs, adoption_report   parts of `call`, `tokens` and `adopt`
"""
