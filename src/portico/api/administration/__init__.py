"""Routes for who may administer the gateway: its rules, people, configuration and clients."""
