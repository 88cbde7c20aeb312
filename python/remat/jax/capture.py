"""The two halves of a step as one graph of what XLA stores."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax.extend.core import Literal

from remat import Graph, PlanResult
from remat.errors import UsageError
from remat.jax.buffers import Buffers, Copy, buffers
from remat.jax.costs import (
    EFFECTS,
    LIBRARY,
    LOOPS,
    OF_ROWS,
    VIEWS,
    bytes_of,
    is_fused,
    is_number,
    is_of_rows,
    seconds_of,
    stacked,
    transposed,
    workspace_of,
)
from remat.jax.devices import CPU, Device, sharding_of
from remat.jax.regions import Name, Op, Primal, Value, decisions, flatten, inner_kinds, shape_of
from remat.jax.shards import RESHARDS, Shards

#: Elements of a window of pooling at most, for gradients that XLA fuses.
MOST_TILES = 16
#: Stored values that are looked at as what an op is made of, at most.
MOST_SOURCES = 8
#: Folders whose lines are not the user's.
LIBRARIES = tuple(str(Path(file).parent) for file in (jax.__file__, __file__))


def refuse_effects(primal: Primal) -> None:
    """Raises UsageError for what may not run a second time, or not without the code around."""
    for op in primal.ops:
        axis = next((e.name for e in op.effects if type(e).__name__ == "NamedAxisEffect"), None)
        if axis is not None:
            raise UsageError(
                f"{op.kind} at {place_of(op.source)} is over axis {axis!r} of the code around, and steps are "
                "compiled without it: take the mean of the loss and of its gradients outside"
            )
        if any(type(v.aval).__name__ == "AbstractRef" for v in op.outs):
            raise UsageError(
                f"{place_of(op.source)} makes a reference, whose writes remat.jax cannot run again"
            )
        found = next((k for k in (op.kind, *inner_kinds(op.params)) if k in EFFECTS), None)
        if found:
            raise UsageError(f"{found} at {place_of(op.source)}: remat.jax cannot run it a second time")


def place_of(source: Any) -> str:
    """The line of the user's code that an op comes from."""
    frames = getattr(getattr(source, "traceback", None), "frames", [])
    own = [f for f in frames if not f.file_name.startswith(("<", *LIBRARIES))]
    if not own:
        return "an unknown place"
    return f"{own[0].file_name}:{own[0].line_num} ({own[0].function_name.rpartition('.')[2]})"


def in_tiles(op: Op) -> bool:
    """Is it the gradient of max-pooling whose windows cover every element once?"""
    if op.kind != "select_and_scatter_add" or op.params["select_prim"].name != "ge":
        return False
    window, shape = op.params["window_dimensions"], op.ins[1].aval.shape
    return (
        math.prod(window) <= MOST_TILES
        and tuple(op.params["window_strides"]) == tuple(window)
        and all(n % w == 0 for n, w in zip(shape, window, strict=True))
        and not any(sum(pair) for pair in op.params["padding"])
    )


def can_loop(op: Op) -> bool:
    """Is it a scan that stacks numbers, one iteration at a time, and has any?"""
    if op.kind != "scan" or op.params["unroll"] != 1 or not op.params["length"]:
        return False
    return bool(stacked(op)) and all(is_number(v.aval) for v in stacked(op))


def halves(primal: Primal, avals: Sequence[Any], diff: Sequence[int], losses: Sequence[int]) -> Any:
    """Closed jaxprs of the forward half (losses, rest, residuals) and of the backward half."""

    def plain(*diff_args: Any, rest: Sequence[Any]) -> tuple[Any, Any]:
        args = list(rest)
        for i, x in zip(diff, diff_args, strict=True):
            args[i] = x
        env = dict(primal.values) | dict(zip(primal.inputs, args, strict=True))
        primal.run(primal.ops, env, lambda v: True)
        out = primal.out(env)
        return [out[i] for i in losses], [x for i, x in enumerate(out) if i not in losses]

    def forward(*args: Any) -> Any:
        made, pull, rest = jax.vjp(lambda *d: plain(*d, rest=args), *[args[i] for i in diff], has_aux=True)
        return made, rest, pull

    with jax.disable_jit(False):
        fwd, shapes = jax.make_jaxpr(forward, return_shape=True)(*avals)
        leaves, tree = jax.tree_util.tree_flatten(shapes[2])

        def backward(cotangents: Any, residuals: Any) -> Any:
            return jax.tree_util.tree_unflatten(tree, residuals)(cotangents)

        return fwd, jax.make_jaxpr(backward)(shapes[0], leaves)


def written_over(results: Sequence[Any], inputs: Sequence[Any], donated: Sequence[int]) -> dict[Any, Any]:
    """Which input each result is written over, as JAX pairs them: the first that is left of its shape and
    type."""
    left = [inputs[i] for i in donated]
    found: dict[Any, Any] = {}
    for v in results:
        if isinstance(v, Literal) or v in found or v in inputs:
            continue
        same = (x for x in left if (x.aval.shape, x.aval.dtype) == (v.aval.shape, v.aval.dtype))
        given = next(same, None)
        if given is not None:
            left.remove(given)
            found[v] = given
    return found


class Joint:
    """Both halves as a graph; what XLA fuses is read through to what it stores.

    Args:
        diff: numbers of the inputs that gradients are taken of.
        losses: numbers of the results that are differentiated.
        between: bytes to take between the halves, in an op of that name, so that a budget is about what is
            saved and not about how it is used.
        host: may plans copy results that have names to the host?
        donated: numbers of the inputs that results may be written over.
    """

    def __init__(
        self,
        primal: Primal,
        avals: Sequence[Any],
        diff: Sequence[int],
        losses: Sequence[int] = (0,),
        between: int = 0,
        device: Device = CPU,
        host: bool = False,
        donated: Sequence[int] = (),
    ) -> None:
        self.device, self.host = device, host
        fwd, bwd = halves(primal, avals, diff, losses)
        ops, consts, outs = flatten(fwd.jaxpr, fwd.consts)
        back, more, self.grads = flatten(bwd.jaxpr, bwd.consts)
        self.consts: dict[Any, Any] = consts | more
        results, residuals = outs[: len(primal.outputs)], outs[len(primal.outputs) :]
        self.results = results
        self.same: dict[Any, Any] = dict(zip(bwd.jaxpr.invars[len(losses) :], residuals, strict=True))
        self.names: dict[Any, int] = {}
        #: Numbers of other results that are the same value, by its number.
        self.twins: dict[int, list[int]] = {}
        first: dict[Any, Op] = {}
        for op in ops:
            if op.kind == "name":
                name = op.params["name"]
                self.same[op.outs[0]] = op.ins[0]
                if isinstance(name, Name) and name.plan is primal and not isinstance(op.ins[0], Literal):
                    number = name.number
                    own = self.names.setdefault(self.at(op.ins[0]), number)
                    if own != number:
                        self.twins.setdefault(own, []).append(number)
                continue
            # XLA makes equal results once.
            key = self.key(op)
            if key is not None and first.setdefault(key, op) is not op:
                self.same.update(zip(op.outs, first[key].outs, strict=True))
        self.inputs = [*fwd.jaxpr.invars, *bwd.jaxpr.invars[: len(losses)]]
        self.order(ops, back)
        #: Inputs that results are written over, by result.
        self.over = written_over([*self.results, *map(self.at, self.grads)], self.inputs, donated)
        self.shards: Shards | None = None
        if any(sharding_of(a) for a in avals):
            self.spread([*avals, *(shape_of(v) for v in self.inputs[len(avals) :])])
        self.build(between)

    def spread(self, avals: Sequence[Any]) -> None:
        """Gives all values the shapes that one device holds."""
        own = {v: Value(v.aval) for v in self.inputs}
        self.same.update(own)
        self.inputs = list(own.values())
        self.over = {v: own[given] for v, given in self.over.items()}
        ops = [*self.forward, *self.backward]
        for op in ops:
            op.ins = list(map(self.at, op.ins))
        self.shards = Shards(ops, dict(zip(self.inputs, avals, strict=True)), self.value)

    def value(self, v: Any, env: dict[Any, Any]) -> Any:
        """The array that an operand stands for, among those that are known."""
        v = self.at(v)
        if isinstance(v, Literal):
            return v.val
        return env[v] if v in env else self.consts[v]

    def in_full_order(self) -> Joint:
        """The same halves as a graph for `remat.jax.full`, which has gradients of max-pooling of its own."""
        other = copy.copy(self)
        other.build(0, full=True)
        return other

    def at(self, v: Any) -> Any:
        while not isinstance(v, Literal) and v in self.same:
            v = self.same[v]
        return v

    def key(self, op: Op) -> Any:
        """Equal for ops that make equal results. None: not known."""
        ins = [(str(v.val), v.aval.dtype) if isinstance(v, Literal) else self.at(v) for v in op.ins]
        key = (op.kind, tuple(ins), tuple(sorted(op.params.items(), key=lambda item: item[0])))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def read(self, ins: Sequence[Any]) -> list[Any]:
        return [v for v in map(self.at, ins) if not isinstance(v, Literal)]

    def order(self, ops: list[Op], back: list[Op]) -> None:
        """Live ops; those that only make residuals move to the backward half."""
        needed = set(self.read(self.results))
        forward, moved = [], []
        for op in reversed(ops):
            if op.outs and op.outs[0] in self.same:
                continue
            if any(v in needed for v in op.outs):
                needed.update(self.read(op.ins))
                forward.append(op)
            else:
                moved.append(op)
        made = {v: op for op in moved for v in op.outs}
        needed = set(self.read(self.grads))
        live = []
        for op in reversed(back):
            if any(v in needed for v in op.outs):
                needed.update(self.read(op.ins))
                live.append(op)
        self.forward: list[Op] = forward[::-1]
        self.backward: list[Op] = []
        done: set[Op] = set()

        def place(op: Op) -> None:
            pending = [op]
            while pending:
                top = pending[-1]
                before = [made[v] for v in self.read(top.ins) if v in made and made[v] not in done]
                if before and top not in done:
                    pending += before
                    continue
                pending.pop()
                if top not in done:
                    done.add(top)
                    self.backward.append(top)

        for op in live[::-1]:
            place(op)
        for v in self.read(self.grads):  # a gradient that the forward half makes
            if v in made:
                place(made[v])

    def operands(self) -> set[Any]:
        """Values that dots, convolutions and loops read, through views too."""
        found: set[Any] = set()
        for op in reversed([*self.forward, *self.backward]):
            if op.kind in LIBRARY | LOOPS or (self.is_view(op) and op.outs[0] in found):
                found.update(self.read(op.ins))
        return found

    def one_pass(self) -> set[Op]:
        """Sums and maxima of rows that XLA makes in the kernel that reads the rows once more, with what is
        made of these alone, as in softmax and norms: all that reads them is elementwise, and together with
        its rows."""
        ops = [*self.forward, *self.backward]
        readers: dict[Any, list[Op]] = {}
        sources: dict[Any, frozenset[Any]] = {}

        def is_elementwise(op: Op) -> bool:
            # Sums of one element are reshapes.
            alone = op.kind in OF_ROWS and op.ins[0].aval.size == op.outs[0].aval.size
            return alone or is_fused(op.kind, op.params, self.device.habits)

        for op in ops:
            made_of: set[Any] = set()
            for v in dict.fromkeys(self.read(op.ins)):
                readers.setdefault(v, []).append(op)
                made_of |= sources.get(v, {v})
            if (is_of_rows(op) or is_elementwise(op)) and len(made_of) <= MOST_SOURCES:
                sources.update((v, frozenset(made_of)) for v in op.outs)
        kept = {*self.read(self.results), *self.read(self.grads)}

        def narrow(first: Op) -> set[Op]:
            size, rows = first.outs[0].aval.size, sources.get(first.outs[0], frozenset())
            found, pending, met = {first}, [first.outs[0]], False
            while pending:
                v = pending.pop()
                for op in readers.get(v, []):
                    out = op.outs[0]
                    if v in kept or not is_elementwise(op):
                        return set()
                    if out.aval.size <= size or op.kind in VIEWS:
                        if op not in found:
                            found.add(op)
                            pending.append(out)
                    else:
                        met = met or any(sources.get(w, {w}) & rows for w in self.read(op.ins) if w is not v)
            return {op for op in found if met and op.outs[0].aval.size <= size}

        return set().union(*(narrow(op) for op in ops if is_of_rows(op)))

    def is_view(self, op: Op) -> bool:
        if op.kind in RESHARDS:
            return not self.grows(op)
        return op.kind in VIEWS or op.kind in self.device.habits.views

    def build(self, between: int, full: bool = False) -> None:
        self.full = full
        self.light: dict[Any, Op] = {}
        operands = self.operands()
        readers: dict[Any, int] = {}
        for op in [*self.forward, *self.backward]:
            for v in set(self.read(op.ins)):
                readers[v] = readers.get(v, 0) + 1
        kept = set(self.read(self.results)) | set(self.read(self.grads))
        given = set(self.inputs)
        leaves: dict[Any, set[Any]] = {}
        work: dict[Any, float] = {}
        index: dict[Any, int] = {v: i for i, v in enumerate(self.inputs)}
        values: list[dict[str, Any]] = [{"bytes": bytes_of(v)} for v in self.inputs]
        nodes: list[dict[str, Any]] = []
        self.value_of: dict[int, Any] = {}
        self.stored: dict[int, Op] = {}
        self.reads: dict[Op, list[Any]] = {}
        self.fused: dict[Any, Op] = {}

        def add(name: str, reads: list[int], outs: list[int], duration: float, **more: Any) -> None:
            nodes.append({
                "name": f"{name}.{len(nodes)}", "kind": name, "duration": int(1e9 * duration) + 1,
                "inputs": reads, "outputs": outs, **more,
            })  # fmt: skip

        habits = self.device.habits
        one_pass = self.one_pass() if habits.one_pass else set()

        def fuses(op: Op) -> bool:
            return full and in_tiles(op)

        freed = sorted(index[v] for v in self.over.values())
        if freed:
            # What is written over is in memory as long as it is read, and no longer.
            add("donated", [], freed, 0.0, phase="forward", recompute="never")
        indices: dict[Op, int] = {}
        for op in self.backward:
            if op.kind == "select_and_scatter_add" and habits.pooled_by_indices and not fuses(op):
                # XLA makes the indices of all elements, and zeros, when the program begins.
                shape = op.ins[1].aval.shape
                indices[op] = len(values)
                values.append({"bytes": 4 * len(shape) * math.prod(shape) + bytes_of(op.ins[1])})
                add("iota", [], [indices[op]], 0.0, phase="forward", recompute="never")
        # What a scan stacks is in its buffer, all along: a second run would have another one.
        stacks: dict[Any, int] = {}
        early = [
            op for op in (*self.forward, *self.backward)
            if op.kind == "scan" and habits.early_stacks and not (full and self.is_looped(op))
        ]  # fmt: skip
        for op in early:
            inner = [v for v in stacked(op) if v not in kept and v in readers]
            stacks.update((v, len(values) + i) for i, v in enumerate(inner))
            values += [{"bytes": bytes_of(v)} for v in inner]
            if inner:
                add("zeros", [], [stacks[v] for v in inner], 0.0, phase="forward", recompute="never")
        kernels: dict[Op, int] = {}
        for op in self.forward:
            if op.kind == "conv_general_dilated" and habits.transposed_kernels and not full:
                kernels[op] = len(values)
                values.append({"bytes": bytes_of(op.ins[1])})
                add("kernel", [], [kernels[op]], 0.0, phase="forward", recompute="never")
        partial = {} if full else self.partial_gradients()
        # What is compared with what was chosen from it is made once, and so is what was decided.
        once_made = set().union(*decisions([*self.forward, *self.backward], self.at))
        for phase, ops in (("forward", self.forward), ("backward", self.backward)):
            if phase == "backward" and between:
                values.append({"bytes": 0})
                add("between", [], [len(values) - 1], 0.0, phase=phase, workspace=between)
            for op in ops:
                reads: set[Any] = set()
                inlined = self.inlined(op) if full else {}
                for v in self.read(op.ins):
                    parts = self.read(inlined[v].ins) if v in inlined else [v]
                    for part in parts:
                        reads |= leaves.get(part, {part} if part in index else set())
                params = self.shards.params.get(op, op.params) if self.shards else op.params
                seconds = seconds_of(self.device, op.kind, params, op.ins, op.outs)
                seconds += sum(work.get(v, 0.0) for v in set(self.read(op.ins)))
                behind = sum(bytes_of(v) for v in reads if v not in given)
                dear = len(reads) > 4 or (
                    readers.get(op.outs[0], 0) > 1 and behind > 2 * bytes_of(op.outs[0])
                )
                dear = dear or (op.outs[0] in operands and not self.is_view(op))
                fusible = is_fused(op.kind, op.params, habits) or (op.kind in RESHARDS and not self.grows(op))
                dear = dear or op in once_made
                if op in one_pass or (fusible and op.outs[0] not in kept and not dear):
                    for v in op.outs:
                        leaves[v], work[v], self.fused[v] = reads, seconds, op
                    continue
                self.stored[len(nodes)] = op
                self.reads[op] = sorted(reads, key=index.__getitem__)
                large = [v for v in reads if bytes_of(v) > bytes_of(op.outs[0]) // 8]
                if op.kind == "concatenate" or (fusible and len(large) == 1):
                    self.light[op.outs[0]] = op
                for v in op.outs:
                    index[v] = len(values)
                    self.value_of[len(values)] = v
                    values.append({"bytes": 0 if v in stacks else bytes_of(v)})
                moved = sum(map(bytes_of, [*reads, *op.outs]))
                more = [indices[op]] if op in indices else []
                more += [stacks[v] for v in {*reads, *op.outs} if v in stacks]
                never = op in once_made or any(v in stacks for v in op.outs)
                once = {"recompute": "never"} if never else {}
                add(
                    op.kind, sorted([index[v] for v in reads] + more), [index[v] for v in op.outs],
                    max(seconds, moved / self.device.bandwidth), phase=phase, **once,
                    workspace=0 if fuses(op) else workspace_of(
                        self.device, op.kind, params, op.ins, op.outs
                    ) + self.sent(op, op in partial.values()),
                )  # fmt: skip
                if op in kernels:
                    values.append({"bytes": 0})
                    add("kernel", [kernels[op]], [len(values) - 1], 0.0, phase=phase, recompute="never")
        # A scan that does not run again keeps what its backward half reads.
        scanned = {v for node in nodes if node["phase"] == "backward" and node["kind"] == "scan"
                   for v in node["inputs"]} if stacks else set()  # fmt: skip
        for node in nodes:
            if node["phase"] == "forward" and not scanned.isdisjoint(node["outputs"]):
                node["recompute"] = "never"
        # Sums over devices are one operation at the end, with all parts and all sums in memory.
        sums = {v: len(values) + i for i, v in enumerate(partial)}
        values += [{"bytes": bytes_of(v)} for v in partial]
        if partial:
            parts = sorted(index[v] for v in partial)
            add("psum", parts, list(sums.values()), 0.0, phase="backward", recompute="never")
        self.early = {index[v] for op in early for v in stacked(op) if v in kept}
        # XLA's size is never below this: results have buffers of their own, which hold temporaries before.
        self.ends = sum(map(bytes_of, [*self.inputs, *self.read(self.results), *self.read(self.grads)]))
        self.ends -= sum(values[i]["bytes"] for i in freed)
        self.written = {sums.get(v, index[v]): index[given] for v, given in self.over.items()}
        outputs = sorted({sums.get(v, index[v]) for v in kept if v in index})
        inputs = [i for i in range(len(self.inputs)) if i not in freed]
        if self.host:
            movable = self.movable()
            for number, value in enumerate(values):
                if self.value_of.get(number) not in movable:
                    value["copy"] = "never"
        self.graph = Graph(values, nodes, inputs, outputs, "jax")

    def is_looped(self, op: Op) -> bool:
        """Does full order run the op as a loop of its own?"""
        return self.device.habits.early_stacks and self.shards is None and can_loop(op)

    def grows(self, op: Op) -> bool:
        """Does it bring parts from other devices?"""
        return bytes_of(op.outs[0]) > bytes_of(op.ins[0])

    def partial_gradients(self) -> dict[Any, Op]:
        """Gradients that are sums over the devices, and the ops that make each device's part."""
        if self.shards is None:
            return {}
        makers = {v: op for op in [*self.forward, *self.backward] for v in op.outs}
        found = {}
        for v in self.read(self.grads):
            op = makers.get(v)
            while op is not None and self.is_view(op):
                op = makers.get(next(iter(self.read(op.ins)), None))
            if op is not None and self.shards.is_partial(op):
                found[v] = op
        return found

    def sent(self, op: Op, later: bool) -> int:
        """Bytes of buffers for what devices send each other while an op runs; `later`: others sum its
        result."""
        if self.shards is None:
            return 0
        partial = bytes_of(op.outs[0]) if self.shards.is_partial(op) and not later else 0
        return partial + self.shards.gathered(op)

    def movable(self) -> set[Any]:
        """Results that a name can move to the host: scans, which run without a checkpoint, read none of them,
        and no other result is the same value."""
        scanned = {v for op in self.forward if op.kind == "scan" for v in self.reads[op]}
        return {v for v, number in self.names.items() if v not in scanned and number not in self.twins}

    def made_for(self, results: Sequence[Any]) -> set[int]:
        """Numbers of the graph's values that are these results."""
        wanted = set(self.read(results))
        return {number for number, v in self.value_of.items() if v in wanted}

    def inlined(self, op: Op) -> dict[Any, Op]:
        """What an op reads and XLA fuses with the copy that it makes of an operand: concatenations, and what
        is made of one large value."""
        if op.kind != "conv_general_dilated" or not self.device.habits.transposed_operands:
            return {}
        pairs = zip(map(self.at, op.ins), transposed(op.params)[:2], strict=True)
        return {v: self.light[v] for v, other in pairs if other and v in self.light}

    def cone(self, op: Op) -> list[Op]:
        """The fused ops that a stored op reads, in order, and the op itself."""
        found: dict[Op, bool] = {}

        fused = self.fused | self.inlined(op) if self.full else self.fused

        def go(top: Op) -> None:
            pending = [(top, iter(self.read(top.ins)))]
            while pending:
                current, rest = pending[-1]
                maker = next((fused[v] for v in rest if v in fused), None)
                if maker is None:
                    pending.pop()
                    found[current] = True
                elif maker not in found:
                    pending.append((maker, iter(self.read(maker.ins))))

        go(op)
        return list(found)

    def numbers(self, saved: Sequence[int]) -> set[int]:
        """Numbers, in the plain function, of the graph's values that can carry a name."""
        found = {self.names[v] for v in map(self.value_of.get, saved) if v in self.names}
        return found.union(*(self.twins.get(number, ()) for number in found))

    def once(self, primal: Primal, saved: Sequence[int]) -> set[int]:
        """Ops of the plain function that save results without a name: those of scans for their backward."""
        chosen = set(map(self.value_of.get, saved))
        found = set()
        for op in self.forward:
            named = [self.names[v] for v in op.outs if v in self.names]
            if named and any(v in chosen and v not in self.names for v in op.outs):
                found.add(named[0])
        return {i for i, op in enumerate(primal.ops) if any(primal.number[v] in found for v in op.outs)}

    def size(self, peak: int) -> int:
        """What XLA reports for a plan's peak: arguments + outputs + temporary size, in bytes."""
        return max(peak, self.ends)

    def size_of(self, steps: Sequence[int], moved: Sequence[Copy] = ()) -> int:
        """The same for the steps of a plan and its copies to the host and back, with what XLA puts into the
        buffers of results."""
        return self.ends + self._buffers(steps, moved).temporary_size

    def _buffers(self, steps: Sequence[int], moved: Sequence[Copy]) -> Buffers:
        return buffers(self.graph, steps, self.early, self.written, moved)

    def with_empty(self, graph: Graph, result: PlanResult) -> Graph:
        """The graph with workspaces for what XLA leaves empty in buffers of results while a plan runs, at
        least those of another such graph. An op that runs twice gets what its largest step lacks."""
        assert result.plan is not None
        steps = result.plan.steps
        found = self._buffers(steps, result.plan.copies)
        most: dict[int, int] = {}
        alive: dict[int, int] = {}
        for op, block, empty in zip(steps, found.block, found.empty, strict=False):
            most[op] = max(most.get(op, 0), block)
            alive[op] = max(alive.get(op, 0), block - empty)
        more = graph.to_dict()
        for op, (node, own) in enumerate(zip(more["ops"], self.graph.workspaces, strict=True)):
            node["workspace"] = max(node.get("workspace", 0), int(own) + most[op] - alive[op])
        return Graph.from_dict(more)
