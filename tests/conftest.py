"""Generated examples are the same in every run, and may take the time that a busy machine takes.

`pytest --hypothesis-profile=default` looks for new ones.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "same",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")
