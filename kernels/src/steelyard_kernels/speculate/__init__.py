"""Speculative decoding: cheap guesses of the next tokens, verified so that what is generated is distributed as without them."""
