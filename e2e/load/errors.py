"""The one error of this package."""

from e2e.errors import ToolError


class LoadError(ToolError):
    """A run that cannot be made or trusted, told in whole sentences, remedy included."""
