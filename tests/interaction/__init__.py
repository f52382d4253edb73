"""Portico as its clients meet it: a public or a raw client at the door, real servers or a
`FakeBackend` behind it.

holding (contexts that outlive a test) · raw (clients of bare JSON) · vendor_server (a server of
fields nobody knows) · matrix, raw layer, exposures, profiles, transparency, namespaces,
announcements, relayed requests
"""
