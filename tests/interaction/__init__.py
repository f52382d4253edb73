"""Portico as its clients meet it: a public or a raw client at the endpoint, real servers or a
`FakeBackend` behind it.

raw_clients (clients of bare JSON) · fake_servers · vendor_server (a server of
fields nobody knows) · matrix, raw layer, exposures, profiles, transparency, namespaces,
notifications, relayed requests
"""
