"""What all tests of the repository share: properties are judged by what they find, not by how busy the machine is.

Hypothesis fails an example that takes longer than 200 ms and a test whose data takes long to make; on a shared machine both say
nothing about the code. Examples are the same in every run, so that a change is judged by what it changed; look for new ones with
`pytest --hypothesis-profile=default`.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared-machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared-machine")
