"""What ends a run with a message instead of a traceback."""


class QuantizeError(ValueError):
    """The input or the recipe cannot be used; the text names what, its value, and the remedy. Nothing was written."""


class Busy(QuantizeError):
    """Another process is writing the same checkpoint."""


class Taken(QuantizeError):
    """The checkpoint's place is taken, perhaps by what another process has just made."""
