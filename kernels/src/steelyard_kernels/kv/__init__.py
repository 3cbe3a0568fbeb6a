"""Caches of keys and values that keep less: fewer tokens or fewer bits."""
