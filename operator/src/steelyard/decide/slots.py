"""How many sequences one decode replica may hold, as the autoscaler tells the gateways: `decision.json` in their ConfigMap.

A key of its own, written under a field manager of its own: a reconcile holds `gateway.json` in place and takes nothing else
there for drift, the autoscaler writes this one only, so neither ever undoes the other. The file stays when the mode leaves
Auto, as numbers of replicas do; it never admits more than `gateway.json` does, and says nothing of one pool that does both.
"""

import json

FILE = "decision.json"
FOLLOWED_SHARE = 0.1  # a change of less than this is left for later: contexts flicker, and all gateways hear of it
NEAR_SHARE = 0.5  # a limit of which no replica holds as much keeps nobody waiting
PAUSE_SECONDS = 15.0  # from one write to the next


def text(slots: int) -> str:
    """The file's content."""
    return json.dumps({"decodeSlots": slots}) + "\n"


def read(content: str | bytes | None) -> int | None:
    """Read what `text` gave; None for anything else."""
    try:
        slots = json.loads(content or "")["decodeSlots"]
    except (ValueError, KeyError, TypeError):
        return None
    return slots if isinstance(slots, int) and not isinstance(slots, bool) and slots >= 1 else None


def moved(told: int | None, wanted: int, held: float) -> bool:
    """Whether what the gateways were told last is too far from what is right now, and matters: `held` are the sequences of the
    decode replica that has the most."""
    if told is None:
        return True
    return abs(wanted - told) > FOLLOWED_SHARE * told and held >= NEAR_SHARE * min(told, wanted)
