"""Attention for prefill and decode, over plain and paged keys and values."""
