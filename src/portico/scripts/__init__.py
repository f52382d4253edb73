"""Scripts that call tools.

runner         runs one script from its text to its outcome
script_context tools that a script mentions; values kept by `store` and `load`
engines        the engine of each language, and fair access to its workers
hints          advice for common mistakes
sandbox/       the engines themselves
"""
