"""The demo's burst: one load against one service three times at once, and what each spent for what it attained.

`auto` scales itself, `off` stays at the minimum, `hindsight` has from the start the fewest replicas that hold the objectives over
this load, as somebody would choose who knew it beforehand.

Data's way: `load` and `fleet` (what is played, and where) → `hindsight` (by the simulator) → `watch` (samples while it plays)
→ `account` (the figures) → `show` (the terminal), `page` (HTML).
"""
