"""The two ways in which a reconcile stops early on purpose; anything else that is raised is a fault of ours.

`Rejected` waits for the user: no retry until the spec or the world changes. `Waiting` waits for the cluster: the same
reconcile again after a while. Both end up in a condition with their reason and message.
"""

from steelyard.api.reasons import Reason


class Rejected(Exception):
    """What the user asked for cannot be done; the message names the field, its value and the remedy."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Waiting(Exception):
    """Something in the cluster has to happen first; try again after `after_seconds`."""

    def __init__(self, reason: Reason, message: str, after_seconds: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.after_seconds = after_seconds
