"""Speculative decoding: the distribution stays the model's, greedy text the same, and the formula agrees with what happens."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from steelyard_kernels.model import gguf
from steelyard_kernels.model.llama import Llama, greedy
from steelyard_kernels.speculate.decode import decode
from steelyard_kernels.speculate.guess import DraftGuesser, NgramGuesser, first_layers
from steelyard_kernels.speculate.speedup import Acceptance, best_guesses, expected_tokens, speedup
from steelyard_kernels.speculate.verify import one_hot, verify, verify_greedy

VOCABULARY, GUESSES, TRIALS = 5, 2, 4000


def chances(*rows: list[float]) -> Tensor:
    return torch.tensor(rows)


MODEL = chances([0.4, 0.3, 0.2, 0.1, 0.0], [0.1, 0.2, 0.3, 0.2, 0.2], [0.2, 0.2, 0.2, 0.2, 0.2])
DRAFTS = {
    "another": chances([0.1, 0.2, 0.3, 0.2, 0.2], [0.5, 0.1, 0.1, 0.1, 0.2]),
    "the same": MODEL[:2],
    "disjoint": chances([0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.5, 0.5]),
}


@pytest.mark.parametrize("name", DRAFTS)
def test_the_first_tokens_have_the_models_distribution(name: str) -> None:
    """Chi-square of the first token, and of the second where a first guess was kept."""
    draft, generator = DRAFTS[name], torch.Generator().manual_seed(11)
    first, second = torch.zeros(VOCABULARY), torch.zeros(VOCABULARY)
    for _ in range(TRIALS):
        guess = torch.cat([torch.multinomial(row, 1, generator=generator) for row in draft])
        tokens = verify(guess, draft, MODEL, generator).tokens
        first[tokens[0]] += 1
        if len(tokens) > 1:
            second[tokens[1]] += 1
    for count, expected in ((first, MODEL[0]), (second, MODEL[1])):
        if count.sum() < 200:
            continue
        possible = expected > 0
        assert not count[~possible].any()
        found = stats.chisquare(count[possible], expected[possible] * count.sum() / expected[possible].sum())
        assert found.pvalue > 1e-3, f"{name}: {count.tolist()}"


def test_a_wrong_rule_would_be_noticed() -> None:
    """Keeping every guess gives the draft's distribution, which the same chi-square rejects."""
    generator = torch.Generator().manual_seed(11)
    draft = DRAFTS["another"]
    count = torch.bincount(
        torch.multinomial(draft[0], TRIALS, replacement=True, generator=generator), minlength=VOCABULARY
    )
    possible = MODEL[0] > 0
    expected = MODEL[0][possible] * count[possible].sum() / MODEL[0][possible].sum()
    assert stats.chisquare(count[possible].float(), expected).pvalue < 1e-6


@pytest.mark.parametrize(("name", "kept"), [("the same", GUESSES), ("disjoint", 0)])  # another's is between, and random
def test_equal_distributions_keep_all_and_disjoint_ones_none(name: str, kept: int) -> None:
    generator = torch.Generator().manual_seed(2)
    for _ in range(50):
        guess = torch.cat([torch.multinomial(row, 1, generator=generator) for row in DRAFTS[name]])
        found = verify(guess, DRAFTS[name], MODEL, generator)
        assert found.kept == kept
        assert len(found.tokens) == kept + 1


def test_acceptance_is_the_overlap_of_the_two_distributions() -> None:
    """P(kept) = Σ min(p, q)."""
    draft, generator = DRAFTS["another"], torch.Generator().manual_seed(5)
    overlap = torch.minimum(MODEL[0], draft[0]).sum().item()
    kept = 0
    for _ in range(TRIALS):
        guess = torch.multinomial(draft[0], 1, generator=generator)
        kept += verify(guess, draft[:1], MODEL[:2], generator).kept
    assert stats.binomtest(kept, TRIALS, overlap).pvalue > 1e-3


@given(seed=st.integers(0, 999), count=st.integers(0, 4))
def test_greedy_verification_is_the_case_of_certain_distributions(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count + 1, 3, generator=generator)
    guess = torch.randint(0, 3, (count,), generator=generator)
    certain = verify(guess, one_hot(guess, 3), one_hot(logits.argmax(-1), 3), generator)
    assert certain == verify_greedy(guess, logits)


def test_an_ngram_guesses_what_followed_last_time() -> None:
    guesser = NgramGuesser(10, longest=3)
    assert guesser.guess([1, 2, 3, 4, 9, 1, 2, 3], 2).tokens.tolist() == [4, 9]
    assert guesser.guess([1, 2, 5, 1, 2, 6, 7, 2], 2).tokens.tolist() == [6, 7]  # the most recent place, one token long
    assert guesser.guess([1, 2, 3], 2).tokens.tolist() == []
    with pytest.raises(ValueError, match="shortest is 0"):
        NgramGuesser(10, shortest=0)


def test_greedy_text_is_the_same_with_any_guesser(checkpoint: gguf.Checkpoint, model: Llama) -> None:
    text = checkpoint.tokenizer.encode("One two three four. One two three four. One two").ids
    plain = greedy(model, text, 6)
    guessers = {
        "n-gram": NgramGuesser(model.weights["model.embed_tokens.weight"].shape[0]),
        "the first 27 layers": DraftGuesser(first_layers(model, checkpoint.config, 27), temperature=0),
    }
    for name, guesser in guessers.items():
        found = decode(model, text, 6, guesser, guesses=3)
        assert found.tokens == plain, name
    repeating = decode(model, text, 6, guessers["n-gram"], guesses=3).acceptance
    assert repeating.rate() > 0.5  # the text repeats itself
    assert repeating.tokens_per_step() > 1.5


@pytest.mark.parametrize(
    ("rate", "guesses", "cost", "expected"),
    [(0.0, 4, 0.0, 1.0), (1.0, 4, 0.0, 5.0), (0.5, 1, 0.5, 1.0), (0.8, 4, 0.05, (1 - 0.8**5) / 0.2 / 1.2)],
)
def test_the_formula_at_points_that_are_known(rate: float, guesses: int, cost: float, expected: float) -> None:
    assert speedup(rate, guesses, cost) == pytest.approx(expected)


def test_the_formula_agrees_with_independent_acceptance() -> None:
    generator, rate, guesses = torch.Generator().manual_seed(8), 0.7, 4
    draws = torch.rand(20000, guesses, generator=generator) < rate
    tokens = draws.long().cumprod(1).sum(1) + 1
    assert tokens.float().mean().item() == pytest.approx(expected_tokens(rate, guesses), rel=0.02)
    acceptance = Acceptance.none(guesses)
    for kept in (tokens - 1).tolist()[:4000]:
        acceptance = acceptance.after(guesses, kept)
    assert acceptance.rate() == pytest.approx(rate, abs=0.02)
    assert acceptance.tokens_per_step() == pytest.approx(expected_tokens(rate, guesses), rel=0.03)


@given(rate=st.floats(0, 0.99), cost=st.floats(0, 1))
def test_the_best_number_of_guesses_is_the_best(rate: float, cost: float) -> None:
    best = best_guesses(rate, cost)
    assert all(speedup(rate, best, cost) >= speedup(rate, other, cost) for other in range(17))
    if cost >= rate:
        assert speedup(rate, best, cost) <= 1 + 1e-9 or math.isclose(speedup(rate, best, cost), 1)


def test_nothing_is_known_before_the_first_step() -> None:
    assert Acceptance.none(3).rate() is None
    assert Acceptance.none(3).tokens_per_step() is None
    with pytest.raises(ValueError, match=r"rate is 1\.2"):
        expected_tokens(1.2, 3)
    with pytest.raises(ValueError, match="2 guesses need 2 rows"):
        verify(torch.tensor([0, 1]), DRAFTS["another"], MODEL[:2])
