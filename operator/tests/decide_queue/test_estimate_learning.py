"""What is learnt from calls, and the bounds it is held in until there is enough of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steelyard.decide.queue.estimate import (
    ENOUGH_SAMPLES,
    PrefillPrior,
    PrefillTime,
    Smoothed,
    TokenRatio,
    theta_seconds,
)

PRIOR = PrefillPrior(0.02, 0.0002, 0.0)
TOKENS = st.floats(1, 8000)


def test_before_any_sample_it_is_the_prior() -> None:
    time = PrefillTime(PRIOR)
    for tokens in (10, 500, 4000):
        assert time.seconds(tokens) == pytest.approx(PRIOR.seconds(tokens))


@given(st.lists(st.tuples(TOKENS, st.floats(1e-3, 100)), max_size=ENOUGH_SAMPLES - 1), TOKENS)
def test_few_samples_move_it_by_no_more_than_a_factor_of_two(samples: list[tuple[float, float]], tokens: float) -> None:
    time = PrefillTime(PRIOR)
    for n, seconds in samples:
        time.learn(n, seconds)
    assert PRIOR.seconds(tokens) / 2 <= time.seconds(tokens) <= PRIOR.seconds(tokens) * 2


@given(st.lists(st.tuples(TOKENS, st.floats(1e-3, 100)), max_size=60), TOKENS, TOKENS)
def test_more_tokens_never_take_less_time(samples: list[tuple[float, float]], one: float, other: float) -> None:
    time = PrefillTime(PRIOR)
    for n, seconds in samples:
        time.learn(n, seconds)
    assert time.seconds(min(one, other)) <= time.seconds(max(one, other)) + 1e-9
    assert time.seconds(one) > 0


@pytest.mark.parametrize(
    "truth", [(0.005, 0.00002, 0.0), (0.1, 0.002, 0.0), (0.0165, 1.5e-5, 4.2e-10), (0.01, 1e-4, 2e-8)]
)
def test_enough_samples_find_the_truth_far_from_the_prior(truth: tuple[float, float, float]) -> None:
    a, b, c = truth
    time = PrefillTime(PRIOR)
    for i in range(200):
        n = 50 + (i * 977) % 6000
        time.learn(n, a + b * n + c * n * n)
    for n in (100, 1000, 5000):
        assert time.seconds(n) == pytest.approx(a + b * n + c * n * n, rel=0.05)


def test_a_single_prompt_length_still_gives_its_own_time() -> None:
    time = PrefillTime(PRIOR)
    for _ in range(100):
        time.learn(300, 0.5)
    assert time.seconds(300) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    ("samples", "gateways", "theta"), [(0, 1, 0.0), (19, 1, 0.0), (20, 1, 0.1), (20, 2, 0.05), (500, 4, 0.025)]
)
def test_theta_is_one_request_until_the_time_is_known_and_then_shared(
    samples: int, gateways: int, theta: float
) -> None:
    assert theta_seconds(samples, gateways) == pytest.approx(theta)


@given(st.floats(0.05, 3.0), st.lists(st.integers(100, 20_000), min_size=60, max_size=80))
def test_the_token_ratio_is_found_from_any_prior(ratio: float, prompts: list[int]) -> None:
    learnt = TokenRatio()
    for size in prompts * 3:
        learnt.learn(size, max(1, round(size * ratio)))
    assert learnt.tokens(4000) == pytest.approx(4000 * ratio, rel=0.35)


def test_empty_prompts_teach_nothing() -> None:
    learnt = TokenRatio(0.25)
    learnt.learn(0, 5)
    learnt.learn(100, 0)
    assert learnt.tokens(400) == pytest.approx(100)
    assert learnt.tokens(0) == 1.0


def test_a_running_mean_follows() -> None:
    mean = Smoothed(0.05)
    for _ in range(100):
        mean.learn(0.2)
    assert mean.value == pytest.approx(0.2, rel=0.01)
