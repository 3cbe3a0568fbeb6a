"""Checkpoints that engines load."""
