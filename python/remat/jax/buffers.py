"""The temporary size that XLA's buffer assignment gives a plan."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from remat import Graph

#: A copy of a plan: value, "out" or "in", steps of its issue and of its wait.
Copy = tuple[int, str, int, int]


@dataclass(frozen=True)
class Buffers:
    """At each step of a plan, bytes in the block of temporaries, and bytes of the results' buffers that hold
    nothing."""

    block: Sequence[int]
    empty: Sequence[int]

    @property
    def temporary_size(self) -> int:
        """Bytes of the buffers that are no arguments and no results of the program."""
        return max(self.block)


def buffers(
    graph: Graph,
    steps: Sequence[int],
    early: Collection[int] = (),
    over: Mapping[int, int] | None = None,
    moved: Sequence[Copy] = (),
) -> Buffers:
    """XLA's buffers for a plan.

    XLA takes buffers from the largest to the smallest. Results of the program get buffers of their own, as
    large as they are and there from the beginning; another value is put into the smallest of these that is
    free as long as it lives. All else lies in one block, of about the most that lives in it at once.

    early: results of the program whose buffers XLA fills with zeros when the program begins.
    over: for results that are written over donated arguments, these. A result that is made before the
    argument was last read lies in the block until then.
    moved: copies to the host and back, of values that are no results of the program.
    """
    end = len(steps)
    over = over or {}
    results, given = set(graph.outputs), set(over.values())
    born: dict[int, int] = {}
    last: dict[int, int] = {}
    lives: list[tuple[int, bool, list[tuple[int, int]]]] = []  # bytes, result of the program, steps

    def close(v: int) -> None:
        lives.append((int(graph.bytes[v]), False, [(born[v], last[v])]))

    leaves: dict[int, list[int]] = {}
    back: dict[int, list[int]] = {}
    for v, way, issue, wait in moved:
        (leaves if way == "out" else back).setdefault(wait if way == "out" else issue, []).append(v)
    for at, op in enumerate(steps):
        for v in leaves.get(at, []):
            close(v)
        for v in back.get(at, []):
            born[v] = last[v] = at
        for v in graph.op_inputs(op):
            last[v] = at
        for v in graph.op_outputs(op):
            if v in born:
                close(v)
            born[v] = last[v] = at
        if graph.workspaces[op]:
            lives.append((int(graph.workspaces[op]), False, [(at, at)]))
    for v in born:
        size = int(graph.bytes[v])
        if v in early:
            born[v] = 0
        if v in over and (read := last[over[v]]) < born[v]:
            lives.append((size, True, [(0, read), (born[v], end)]))
        elif v in over:
            lives.append((size, True, [(0, end)]))
            lives.append((size, False, [(born[v], read)]))
        elif v in results:
            lives.append((size, True, [(born[v], end)]))
        elif v not in given:
            close(v)
    lives.sort(key=lambda life: (-life[0], not life[1], life[2][0][0]))
    slots: list[list[tuple[int, int]]] = []
    change, held = [0] * (end + 2), [0] * (end + 2)
    room = 0
    for size, is_result, when in lives:
        if is_result:
            room += size
            for first, final in when:
                held[first] += size
                held[final + 1] -= size
            slots.append(when)
            continue
        ((first, final),) = when
        for slot in reversed(slots):
            i = bisect_right(slot, (first, end + 1))
            if (i == 0 or slot[i - 1][1] < first) and (i == len(slot) or slot[i][0] > final):
                insort(slot, (first, final))
                held[first] += size
                held[final + 1] -= size
                break
        else:
            change[first] += size
            change[final + 1] -= size
    return Buffers(list(accumulate(change)), [room - full for full in accumulate(held)])
