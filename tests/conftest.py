"""Settings every test shares: one reproducible Hypothesis profile."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "paritas",
    deadline=None,  # shared machines: a slow example is not a wrong one
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("paritas")
