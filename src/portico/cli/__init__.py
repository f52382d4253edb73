"""The command `portico`.

main → command_table, report_commands, client_commands   every command and option
commands/      what each command does, one module each
doctor/        `portico doctor`
setup          flags, environment and files → a configuration, and a gateway over it
config_watcher, gateway_client, signals, garbage_collector, span_export   a running gateway
screen, columns, usage_format, exit, options, logs, log_renderer   output, exit codes, log lines
tool_arguments, tier_costs, adoption_report
"""
