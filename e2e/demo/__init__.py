"""`make demo`: from nothing to a completion that was prefilled in one pod and decoded in another, with the proof."""
