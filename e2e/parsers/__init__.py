"""Engines' own argument parsers, run without an accelerator: what we render is read by those who must read it."""
