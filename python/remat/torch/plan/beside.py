"""Memory that parts in flight together hold beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from .part import Part


class Beside:
    """Bytes by index of a part: `whole` is held if everything is kept, `least` at least, including `tangents`
    for gradients of its outputs.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.resident = max(part.graph.resident for part in parts)
        self.whole = [part.keep_all_held for part in parts]
        self.tangents = [part.made_bytes(part.graph.op_outputs(part.loss)) for part in parts]
        self.least = [
            size + part.made_bytes(part.graph.op_inputs(part.loss))
            for part, size in zip(parts, self.tangents, strict=True)
        ]

    def of(self, index: int, held: Sequence[int]) -> int:
        """Memory of other parts at the peak of a part, if each part holds these bytes."""
        part = self.parts[index]
        others = [j for j in range(len(self.parts)) if j != index]
        beside = sum(
            held[j] - self.tangents[j] if self.parts[j].number in part.before else self.least[j]
            for j in others
        )
        beside += (part.copies - 1) * sum(held)
        beside += sum(p.new_gradients for j, p in enumerate(self.parts) if j != index or p.copies > 1)
        return beside + self.resident - part.graph.resident

    def keep_all_peaks(self) -> list[int]:
        """Of each part where all keep everything."""
        return [int(p.graph.keep_all_peak) + self.of(i, self.whole) for i, p in enumerate(self.parts)]
