"""Failures that a user can understand and act on; command lines print them without a traceback."""


class ToolError(Exception):
    """A failure told in whole sentences, remedy included."""
