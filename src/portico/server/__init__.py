"""MCP towards clients, over HTTP and stdio.

profile_endpoint   one SDK server for each profile; answers every request with raw dicts
http/              the ASGI application
stdio              stdin and stdout of this process
requests/          admission, multi-round requests, the relay back to the client
sessions           registries of sessions and subscriptions, change notifications
subscriptions      resource subscriptions of both eras
read_stall         timer for clients that do not read
"""
