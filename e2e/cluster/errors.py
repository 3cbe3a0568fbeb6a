"""The one error of this package."""

from e2e.errors import ToolError


class ClusterError(ToolError):
    """A failure told in whole sentences, remedy included; the command line prints it without a traceback."""
