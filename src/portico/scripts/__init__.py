"""Scripts that call tools.

runner         runs one script from its text to its outcome
tool_bindings  finds the tools that a script mentions
engines        the engine of each language, and fair access to its workers
state_store    values kept between scripts by `store` and `load`
hints          advice for common mistakes
sandbox/       the engines themselves
"""
