"""The gateway's own authorization server, for identity providers where clients cannot register.

Pure: redirect_uris, credentials, providers, authorization_request, client_registration,
consent_page.
json_requests: requests to others, bounded · client_directory: clients · identity_provider: people
sign_in: from a client over consent and the provider back · token_service: codes and tokens
authorization_server: all of them together
"""
