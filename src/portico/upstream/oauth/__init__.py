"""Signing in to remote servers with OAuth 2.1, as the MCP specification demands.

credential          what one sign-in gave: tokens, and from whom, for what, for whom
challenge           what a refusal (401, 403) of a server says; pure
authorization_http  bounded requests to authorization servers, and to which addresses they may go
discovery           who the authorization server of a server is, and what it can do
registration        which client Portico is there: configured, by a document, or registered
token_requests      requests to the token endpoint, and what its answers mean; pure
sign_in             one sign-in of a person: begun, and finished by what the browser brings back
redirect_listener   the loopback port at which a browser arrives
sign_in_service     sign-ins that are begun from a page, and how far they are
token_source        credentials of one server's requests: read, renewed ahead of their end, refused
server_accounts     all of a gateway's: made from the configuration, stored encrypted
"""
