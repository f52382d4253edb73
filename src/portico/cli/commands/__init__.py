"""The commands, one module each. Nothing is imported here, so that each loads only what it
needs.
"""
