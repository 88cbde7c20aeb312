"""The rules of docs/allocator.md once more, slow and from the page alone: lists searched from one end.

Addresses are (number of the segment, offset): only their order counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * KIB
Place = tuple[int, int]


@dataclass
class Block:
    segment: int
    offset: int
    size: int
    state: str  # "used", "cached" or "unmapped"


@dataclass
class Settings:
    expandable: bool = False
    large_segment: int = 20 * MIB
    max_split: int | None = None
    max_rounding: int = 20 * MIB
    divisions: int = 0


@dataclass
class Segment:
    number: int
    stream: int
    small: bool
    blocks: list[Block] = field(default_factory=list)


class NoRoom(Exception):
    pass


class Model:
    def __init__(self, settings: Settings, capacity: int | None) -> None:
        self.settings = settings
        self.capacity = capacity
        self.segments: list[Segment] = []
        self.made = 0
        self.most_reserved = 0

    # What is there.
    def reserved(self) -> int:
        return sum(b.size for s in self.segments for b in s.blocks if b.state != "unmapped")

    def allocated(self) -> int:
        return sum(b.size for s in self.segments for b in s.blocks if b.state == "used")

    def fits(self, more: int) -> bool:
        return self.capacity is None or self.reserved() + more <= self.capacity

    def of(self, block: Block) -> Segment:
        return next(s for s in self.segments if s.number == block.segment)

    # Rules.
    def rounded(self, size: int) -> int:
        if size < 512:
            return 512
        d = self.settings.divisions
        if d > 1 and size > 512 * d:
            power = 1
            while power * 2 <= size:
                power *= 2
            choices = [power + k * power // d for k in range(d + 1)]
            return min(c for c in choices if c >= size)
        return -(-size // 512) * 512

    def allocate(self, size: int, stream: int) -> Place:
        need = self.rounded(size)
        small = need <= MIB
        block = (
            self.cached(need, small, stream)
            or self.new(need, small, stream)
            or (self.release_oversize(need, small, stream) and self.new(need, small, stream))
        )
        if not block:
            self.empty_cache()
            block = self.new(need, small, stream)
        self.most_reserved = max(self.most_reserved, self.reserved())
        if not block:
            raise NoRoom
        fine = small or self.settings.expandable
        rest = block.size - need
        splits = rest >= 512 if fine else rest > MIB
        if not fine and self.settings.max_split is not None and need >= self.settings.max_split:
            splits = False
        if splits:
            blocks = self.of(block).blocks
            blocks.insert(blocks.index(block) + 1, Block(block.segment, block.offset + need, rest, "cached"))
            block.size = need
        block.state = "used"
        return block.segment, block.offset

    def cached(self, need: int, small: bool, stream: int) -> Block | None:
        pool = [b for s in self.segments if (s.small, s.stream) == (small, stream) for b in s.blocks]
        fits = [b for b in pool if b.state == "cached" and b.size >= need]
        fits.sort(key=lambda b: (b.size, b.segment, b.offset))
        if not fits:
            return None
        best = fits[0]
        if self.settings.expandable:
            for other in fits[1:]:
                if self.may_become(other) >= self.may_become(best):
                    break
                best = other
        limit = self.settings.max_split
        if limit is not None and need < limit <= best.size:
            return None
        if limit is not None and need >= limit and best.size >= need + self.settings.max_rounding:
            return None
        return best

    def may_become(self, block: Block) -> int:
        blocks = self.of(block).blocks
        behind = blocks[blocks.index(block) + 1 :][:1]
        return block.size + sum(b.size for b in behind if b.state == "unmapped")

    def new(self, need: int, small: bool, stream: int) -> Block | None:
        if self.settings.expandable:
            return self.grow(need, small, stream)
        size = 2 * MIB if small else self.settings.large_segment
        if need >= 10 * MIB:
            size = -(-need // (2 * MIB)) * 2 * MIB
        return self.begin(size, small, stream, "cached") if self.fits(size) else None

    def begin(self, size: int, small: bool, stream: int, state: str) -> Block:
        self.made += 1
        segment = Segment(self.made, stream, small)
        segment.blocks = [Block(self.made, 0, size, state)]
        self.segments.append(segment)
        return segment.blocks[0]

    def page(self, small: bool) -> int:
        return 2 * MIB if small else self.settings.large_segment

    def grow(self, need: int, small: bool, stream: int) -> Block | None:
        page = self.page(small)
        start = None
        for segment in self.segments:
            if (segment.small, segment.stream) != (small, stream):
                continue
            for k, block in enumerate(segment.blocks):
                if block.state != "unmapped":
                    continue
                first = k - 1 if k > 0 and segment.blocks[k - 1].state == "cached" else k
                room = 0
                for follower in segment.blocks[first:]:
                    if follower.state == "used":
                        break
                    room += follower.size
                if room >= need:
                    start = segment.blocks[first]
                    break
            if start:
                break
        if start is None:
            device = 1 << 56 if self.capacity is None else self.capacity * 9 // 8
            whole = -(-device // page) * page
            if whole < need:
                return None
            start = self.begin(whole, small, stream, "unmapped")
        segment = self.of(start)
        # Page by page would do the same but for what stays mapped when the device is full.
        while start.state == "unmapped" or start.size < need:
            at = segment.blocks.index(start)
            gap = start if start.state == "unmapped" else segment.blocks[at + 1]
            missing = need if gap is start else need - start.size
            pages = -(-min(missing, gap.size) // page) * page
            if not self.fits(pages):
                return None
            at = segment.blocks.index(gap)
            halves = [Block(segment.number, gap.offset, pages, "cached")]
            if gap.size > pages:
                halves.append(Block(segment.number, gap.offset + pages, gap.size - pages, "unmapped"))
            segment.blocks[at : at + 1] = halves
            offset = start.offset
            self.merge(segment)
            start = next(b for b in segment.blocks if b.offset <= offset < b.offset + b.size)
        return start

    def merge(self, segment: Segment) -> None:
        merged: list[Block] = []
        for block in segment.blocks:
            if merged and merged[-1].state == block.state != "used":
                merged[-1].size += block.size
            else:
                merged.append(block)
        segment.blocks = merged

    def free(self, place: Place) -> None:
        for segment in self.segments:
            for block in segment.blocks:
                if (segment.number, block.offset) == place:
                    assert block.state == "used"
                    block.state = "cached"
            self.merge(segment)

    def release_oversize(self, need: int, small: bool, stream: int) -> bool:
        limit = self.settings.max_split
        if limit is None or self.settings.expandable:
            return False
        wanted = max(need, limit)
        pool = [b for s in self.segments if (s.small, s.stream) == (small, stream) for b in s.blocks]
        free = [b for b in pool if b.state == "cached" and b.size >= limit]
        free.sort(key=lambda b: (b.size, b.segment))
        enough = [b for b in free if b.size >= wanted]
        if enough:
            self.segments.remove(self.of(enough[0]))
            return True
        released = 0
        while free and released < wanted:
            largest = free.pop()
            released += largest.size
            self.segments.remove(self.of(largest))
        return released >= wanted

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            if not any(b.state == "cached" for b in segment.blocks):
                continue  # addresses that never got memory stay
            if self.settings.expandable:
                page = self.page(segment.small)
                pieces: list[Block] = []
                for block in segment.blocks:
                    begin = -(-block.offset // page) * page
                    end = (block.offset + block.size) // page * page
                    if block.state != "cached" or begin >= end:
                        pieces.append(block)
                        continue
                    cuts = [block.offset, begin, end, block.offset + block.size]
                    states = ["cached", "unmapped", "cached"]
                    for low, high, state in zip(cuts, cuts[1:], states, strict=False):
                        if low < high:
                            pieces.append(Block(segment.number, low, high - low, state))
                segment.blocks = pieces
                self.merge(segment)
            empty = "unmapped" if self.settings.expandable else "cached"
            if [b.state for b in segment.blocks] == [empty]:
                self.segments.remove(segment)
