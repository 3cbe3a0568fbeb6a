"""The KV pool: blocks are conserved, hard owners are never evicted, equal prefixes are found and shared."""

from hypothesis import given
from hypothesis import strategies as st
from steelyard_engine.kv import BLOCK, KvPool, blocks_for, extend_keys


def keys_of(tokens: list[int]) -> list[bytes]:
    keys: list[bytes] = []
    extend_keys(keys, tokens)
    return keys


def admit(pool: KvPool, owner: int, tokens: list[int]) -> int:
    """Give `owner` its blocks, register the full ones, and return how many were shared."""
    keys = keys_of(tokens)
    shared, source = pool.match(keys)
    pool.admit(owner, source, shared, blocks_for(len(tokens)))
    for index, key in enumerate(keys):
        pool.register(owner, index, key)
    return shared


def test_keys_depend_on_everything_before():
    a, b = keys_of(list(range(48))), keys_of([*range(16), 99, *range(17, 48)])
    assert a[0] == b[0]
    assert a[1] != b[1]
    assert a[2] != b[2], "equal tokens after different ones are different KV"


def test_keys_are_only_of_full_blocks():
    assert len(keys_of(list(range(BLOCK - 1)))) == 0
    assert len(keys_of(list(range(2 * BLOCK + 1)))) == 2


def test_shared_blocks_are_counted_once_and_survive_their_first_owner():
    pool = KvPool(10 * BLOCK)
    prefix = list(range(3 * BLOCK))
    admit(pool, 1, prefix)
    assert admit(pool, 2, [*prefix, 7]) == 3
    assert pool.used == 4
    assert pool.blocks(1) == pool.blocks(2)[:3]
    pool.release(1)
    assert pool.used == 4
    assert admit(pool, 3, [*prefix, 8]) == 3


def test_least_recently_used_prefix_goes_first():
    pool = KvPool(3 * BLOCK)
    for owner in (1, 2, 3):
        admit(pool, owner, [owner] * BLOCK)
        pool.soften(owner, BLOCK)
    admit(pool, 4, [1] * BLOCK)  # shares with 1, which thereby becomes the latest
    pool.release(4)
    assert pool.admit(5, None, 0, 1) == [2]


def test_reusable_prefixes_have_a_bound_of_their_own():
    pool = KvPool(8 * BLOCK, soft_tokens=3 * BLOCK)
    for owner in (1, 2, 3):
        admit(pool, owner, [owner] * 2 * BLOCK)
    assert pool.soften(1, 2 * BLOCK) == []
    assert pool.soften(2, 2 * BLOCK) == [1], "together they have four blocks"
    assert pool.soften(3, 0) == [3], "nothing of it was computed"
    assert admit(pool, 4, [2] * 2 * BLOCK) == 2


def test_a_prefix_beyond_the_bound_is_not_kept_but_what_is_in_use_counts_for_nothing():
    pool = KvPool(8 * BLOCK, soft_tokens=BLOCK)
    admit(pool, 1, [1] * 2 * BLOCK)
    admit(pool, 2, [1] * 2 * BLOCK)  # shares both blocks
    assert pool.soften(1, 2 * BLOCK) == []
    assert pool.soften(2, 2 * BLOCK) == [1, 2]


def test_a_softened_owner_keeps_only_what_was_computed():
    pool = KvPool(8 * BLOCK)
    admit(pool, 1, list(range(5 * BLOCK)))
    pool.soften(1, BLOCK + 1)
    assert len(pool.blocks(1)) == 2
    assert pool.used == 0
    assert pool.match(keys_of(list(range(5 * BLOCK))))[0] == 2


def test_reviving_a_prefix_costs_its_blocks():
    pool = KvPool(4 * BLOCK)
    prefix = list(range(2 * BLOCK))
    admit(pool, 1, prefix)
    pool.soften(1, 2 * BLOCK)
    admit(pool, 2, [99] * 2 * BLOCK)
    assert pool.fits(1, 2, blocks=2, spare=0)
    assert not pool.fits(1, 2, blocks=3, spare=0)
    assert not pool.fits(1, 2, blocks=2, spare=1)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["admit", "grow", "soften", "release"]), st.integers(0, 7), st.integers(1, 6 * BLOCK)),
    max_size=60,
)


@given(ACTIONS)
def test_blocks_are_conserved(actions: list[tuple[str, int, int]]):
    pool = KvPool(8 * BLOCK)
    hard: dict[int, int] = {}
    for action, owner, size in actions:
        tokens = [owner % 3] * size  # few kinds of prompt, so that many share
        if action == "admit" and owner not in hard and not pool.blocks(owner):
            keys = keys_of(tokens)
            shared, source = pool.match(keys)
            if pool.fits(source, shared, blocks_for(size), spare=0):
                admit(pool, owner, tokens)
                hard[owner] = blocks_for(size)
        elif action == "grow" and owner in hard:
            target = hard[owner] + 1
            if pool.available >= 1:
                pool.grow(owner, target)
                hard[owner] = target
        elif action == "soften" and owner in hard:
            pool.soften(owner, size)
            del hard[owner]
        elif action == "release":
            pool.release(owner)
            hard.pop(owner, None)
        held = {block for one in range(8) for block in pool.blocks(one)}
        assert pool.used == len({block for one in hard for block in pool.blocks(one)})
        assert pool.used + pool.available == pool.total
        assert len(held) <= pool.total
        assert all(len(pool.blocks(one)) == size for one, size in hard.items()), "a hard owner lost blocks"
