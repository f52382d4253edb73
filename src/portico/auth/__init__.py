"""Who may come in: keys, tokens of issuers, and the principal that a credential stands for.

permissions: what a credential allows; pure
keys: one key, its text and its validity; pure
authenticator: the keys of a running gateway, kept current, and who a credential stands for
token_verifier: what checks tokens; issuer_verifier does it for the configured issuers:
signed_token (its form) · issuer_keys, public_keys · introspection · claims (who it is; pure)
console_sessions: who has signed in to the console, and one-time links to it
"""
