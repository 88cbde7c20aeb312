# Public names that stubgen takes for private ones: they end with an underscore.
Host\.in_$:
    @property
    def in_(self) -> int:
        \doc
