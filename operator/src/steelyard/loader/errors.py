"""Why weights cannot be brought. The message names what to do; it reaches the service's status."""


class LoaderError(Exception):
    """It cannot be done now; the kubelet starts the loader again, and what was fetched stays."""


class Refused(LoaderError):
    """The hub will not give it however often it is asked: no such repository, no right to it, a name that leads outside."""
