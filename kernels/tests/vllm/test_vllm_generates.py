"""Whole SmolLM2 checkpoints in a real vLLM engine: they generate, and what they generate is what the codes mean."""

import pytest

from vllm_checkpoints import DTYPES, folder

PROMPT = "Once upon a time, there was a little girl who"
TOKENS = 8
# Formats in which the model stays one; ternary is left out, since rounding a trained model to it leaves none.
FORMATS = ("int4-gptq-ct", "int4-gptq", "int4-awq", "int8", "fp8", "nvfp4", "nvfp4-rotated", "mxfp4", "nf4")


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_checkpoint_generates(name: str) -> None:
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=str(folder(f"whole-{name}")), dtype=DTYPES.get(name, "float32"), enforce_eager=True, max_model_len=256,
        kv_cache_memory_bytes=64 << 20, max_num_seqs=2, disable_log_stats=True,
    )  # fmt: skip
    try:
        answer = engine.generate([PROMPT], SamplingParams(temperature=0, max_tokens=TOKENS, logprobs=1), use_tqdm=False)
    finally:
        engine.llm_engine.engine_core.shutdown()
    output = answer[0].outputs[0]
    assert len(output.token_ids) == TOKENS
    # A broken weight gives a flat distribution over 49,152 tokens: −ln p about 10. The model's own is near 1.
    mean = -output.cumulative_logprob / TOKENS
    assert mean < 3, f"{output.text!r} has a mean −ln p of {mean:.1f}"
