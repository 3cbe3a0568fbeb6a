"""Names that a kernel's signature and annotations ask for."""


class constexpr:
    """A value that is known when a kernel is compiled."""

    def __init__(self, value: object) -> None:
        self.value = value
