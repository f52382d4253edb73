"""The gateway that already runs for this user and this configuration, and how to reach it.

registration       gateways/<id>.json in the data folder: who runs, for what, where, with which key
connection         finds the gateway of a configuration, proves both sides, opens one channel
command_client     runs a command line inside the running gateway; shows what it answers
bridge             `portico stdio` as a pipe to the running gateway
endpoint           gateway side: accepts connections of this user's commands and bridges
command_runner     gateway side: one command line, with the streams of the command that asked;
                   what `portico logs SERVER` and `top` show
background         starts, stops and follows a gateway that runs detached

The first four import nothing but the standard library: a command that asks a running gateway must
not wait for imports.

The protocol: the client sends a nonce; the gateway answers with its own nonce and a keyed digest
over both; only then the client sends its digest, with what it wants as one JSON object on the same
line (`{"proof": …, "open": "stdio" | "command" | "rest" | "inspect" | "stop", …}`). The key itself
is never sent. The answer is one line (`{"ok": true}` or `{"refused": reason}`), then the channel's
content.
"""
