"""How one replica is spread over accelerators."""

from typing import Annotated

from pydantic import Field

from steelyard.api.record import Record

Ways = Annotated[int, Field(ge=1, le=1024)]


class Parallelism(Record):
    """How one replica is spread over accelerators. A field that is set on a role overrides the service's.

    A replica takes tensor × pipeline × data accelerators; more than one node has make it span several nodes.
    """

    tensor: Ways | None = None
    """Accelerators that share each layer (TP). Lowers the time of a token; must divide the attention heads. Default 1."""
    pipeline: Ways | None = None
    """Groups of layers on different accelerators (PP). Fits larger models; adds latency. Default 1."""
    data: Ways | None = None
    """Copies of the attention part that share one queue (DP); with `expert` they share the experts. Default 1."""
    expert: bool | None = None
    """Whether the experts of a mixture-of-experts model are spread over all of the replica's accelerators (EP) instead of
    each being cut. Default false."""

    @property
    def accelerators(self) -> int:
        """Accelerators of one replica."""
        return (self.tensor or 1) * (self.pipeline or 1) * (self.data or 1)
