"""One module for each command. Nothing is imported here, so that each loads only what it needs."""
