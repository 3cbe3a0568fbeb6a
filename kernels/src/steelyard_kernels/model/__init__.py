"""A small real model to measure techniques on: SmolLM2, from its GGUF file."""
