"""Compression that returns every bit."""
