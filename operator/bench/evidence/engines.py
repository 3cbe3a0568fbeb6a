"""The engines of the evidence, with where their figures come from."""

from steelyard.sim.engine import Batching, Engine

# Dynamo 1.4.2's replay with its default polynomial engine: 8,192 blocks of 64 tokens, 8,192 tokens and 256 sequences a pass.
DYNAMO = Engine(
    prefill=(16.50142e-3, 1.518344e-5, 4.209989e-10),
    decode=(5.74e-3, 54.01e-3, -25.74e-3, 0.0),
    kv_tokens=524_288,
    block_tokens=64,
)

# A model of the 32-billion class on one accelerator of the H100 class: 12,500 prompt tokens/s at best, steps of 12–50 ms.
CLASS_32B = Engine(
    prefill=(10e-3, 8e-5, 5e-10),
    decode=(12e-3, 15e-3, 0.0, 1e-4),
    kv_tokens=500_000,
    block_tokens=64,
    transfer=(0.02, 0.0),
)

# DistServe's fits for OPT-13B on one A100-80G: milliseconds, and tokens of KV.
DISTSERVE_PREFILL = (18.10254647486372, 0.1019122572698738, 7.122264314252114e-06)  # a + b·Σl + c·Σl²
DISTSERVE_DECODE = (19.934702624895458, 0.0006269356524350583, 0.03850697740828398)  # a + b·Σcontext + c·batch
DISTSERVE_DECODE_WIDE = (7.1661889468253595, 0.0005798000403396046, 0.15831096191764046)  # from 95 sequences on
DISTSERVE_WIDE_FROM = 95
# Contexts in one step. Its memory table says 66,144 for this model; the golden sweep's p90 of TPOT shows 50,000 (one number,
# inferred from the table it is judged by; everything else is published).
DISTSERVE_KV_TOKENS = 50_000
DISTSERVE_OVERHEAD = (2.0, 1e-4)  # of every pass and step, and for each token of context in it
DISTSERVE_PIPELINE = 1.0  # of every pass, for its one pipeline stage

DISTSERVE_OPT_13B = Engine(
    prefill=(DISTSERVE_PREFILL[0] / 1000, DISTSERVE_PREFILL[1] / 1000, 0.0),
    decode=(
        DISTSERVE_DECODE[0] / 1000,
        DISTSERVE_DECODE[1] * DISTSERVE_KV_TOKENS / 1000,
        0.0,
        DISTSERVE_DECODE[2] / 1000,
    ),
    kv_tokens=DISTSERVE_KV_TOKENS,
    batch_tokens=DISTSERVE_KV_TOKENS,
    max_sequences=1_000_000,
    batching=Batching.CONTINUOUS,
    answers_at_prefill=True,
)
