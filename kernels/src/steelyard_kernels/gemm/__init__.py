"""Matrix products that read compressed weights."""
