"""More positions than a model was made for: the flags with which engines scale its rotary embedding, and how to write them.

vLLM reads the longest context from `max_position_embeddings`, which a scaling by YaRN does not change any more (0.32,
vllm/config/model.py): an override needs both.
"""

from collections.abc import Sequence

FLAGS = {"vllm": "--hf-overrides", "sglang": "--json-model-override-args"}
WORDS = ("rope", "max_position_embeddings")  # of a configuration that scales


def given(engine: str, args: Sequence[str]) -> bool:
    """Whether the user's own flags scale, in any spelling: `--flag JSON`, `--flag=JSON`, `--flag.rope_parameters…`."""
    flag = FLAGS.get(engine)
    if flag is None:
        return False
    for index, argument in enumerate(args):
        if argument.replace("_", "-").startswith(flag):
            told = argument[len(flag) :] + (args[index + 1] if index + 1 < len(args) else "")
            if any(word in told for word in WORDS):
                return True
    return False


def remedy(engine: str, context: int) -> str:
    """Say how a scaling is written for an engine; empty where it takes none by a flag."""
    rope = '{"rope_type": "yarn", "factor": …, "original_max_position_embeddings": …, "rope_theta": …}'
    if engine == "vllm":
        override = f'{{"rope_parameters": {rope}, "max_position_embeddings": {context}}}'
    elif engine == "sglang":
        override = f'{{"rope_scaling": {rope}, "max_position_embeddings": {context}}}'
    else:
        return ""
    return f", or scale it with the figures of the model's card: spec.engine.args: [{FLAGS[engine]}, '{override}']"
