"""The one error of this package: something that its user can understand and act on."""


class ClusterError(Exception):
    """A failure told in whole sentences, remedy included; the command line prints it without a traceback."""
