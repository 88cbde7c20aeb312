#!/usr/bin/env python3
"""Makes a deeper look-alike of a layered training graph: unroll.py GRAPH LAYERS -o OUT.

The op kinds of a captured training step repeat layer by layer, once in the forward and once in the backward
part. The script finds both repetitions and writes the graph with LAYERS layers: a layer in the middle is
copied, references between neighbouring layers are kept relative, everything else is shared.
"""

import argparse
import json


def longest_repetition(kinds, begin, end):
    """(start, period, repeats) of the repetition that covers most ops of kinds[begin:end]."""
    best = (0, 0, 0)
    for period in range(4, (end - begin) // 3):
        run = 0
        for i in range(begin, end - period):
            run = run + 1 if kinds[i] == kinds[i + period] else 0
            repeats = run // period + 1
            # The shorter of two periods that cover the same ops is the layer.
            if repeats >= 3 and repeats * period > best[1] * best[2]:
                best = (i + 1 - run, period, repeats)
    return best


class Unroller:
    """Ops are named by (section, block, offset): section 0 is shared, 1 forward layers, 2 backward layers."""

    def __init__(self, graph, layers):
        self.graph, self.layers = graph, layers
        ops = graph["ops"]
        kinds = [(op.get("kind", op["name"]), len(op["inputs"]), len(op["outputs"])) for op in ops]
        half = self.first_backward(ops)
        self.forward = longest_repetition(kinds, 0, half)
        self.backward = longest_repetition(kinds, half, len(kinds))
        self.repeats = min(self.forward[2], self.backward[2])
        if self.repeats < 4:
            raise SystemExit(f"no four repeated layers found: {self.forward} {self.backward}")
        self.producer = {v: (i, k) for i, op in enumerate(ops) for k, v in enumerate(op["outputs"])}
        self.kept = set(graph["outputs"])
        self.pair_sum = self.find_pairing()
        self.values, self.made, self.clones, self.inputs = [], {}, {}, []
        self.readers_of_input = self.blocks_reading_inputs()

    @staticmethod
    def first_backward(ops):
        for i, op in enumerate(ops):
            if op.get("phase") in ("backward", "loss"):
                return i
        return next(i for i, op in enumerate(ops) if "backward" in op.get("kind", ""))

    def place(self, index):
        for section, (start, period, repeats) in ((1, self.forward), (2, self.backward)):
            if start <= index < start + period * repeats:
                return section, (index - start) // period, (index - start) % period
        return 0, 0, index

    def find_pairing(self):
        """Backward block b belongs to forward block sum - b, the one it reads most."""
        count = {}
        for i, op in enumerate(self.graph["ops"]):
            section, block, _ = self.place(i)
            for v in op["inputs"]:
                if section == 2 and v in self.producer:
                    other = self.place(self.producer[v][0])
                    if other[0] == 1:
                        count[block + other[1]] = count.get(block + other[1], 0) + 1
        return max(count, key=count.get)

    def blocks_reading_inputs(self):
        blocks = {}
        for i, op in enumerate(self.graph["ops"]):
            section, block, _ = self.place(i)
            layer = {0: None, 1: block, 2: self.pair_sum - block}[section]
            for v in op["inputs"]:
                if v not in self.producer:
                    blocks.setdefault(v, set()).add(layer)
        return blocks

    def original_block(self, section, block):
        """The block of the captured graph from which block `block` of the unrolled one is made."""
        repeats = (self.forward, self.backward)[section - 1][2]
        count = repeats + self.layers - self.repeats
        edge = repeats // 2
        if block < edge:
            return block
        return max(edge, block - count + repeats)

    def new_block(self, section, block):
        """The block of the unrolled graph for a block of the captured one that is read from outside the
        layers."""
        repeats = (self.forward, self.backward)[section - 1][2]
        return block if block < repeats // 2 else block + self.layers - self.repeats

    def clone_value(self, value, key):
        if key not in self.clones:
            self.clones[key] = len(self.values)
            self.values.append(dict(self.graph["values"][value]))
        return self.clones[key]

    def resolve_input(self, value, section, block, reader):
        """The unrolled value that the op (section, block) made from captured block `reader` reads."""
        if value not in self.producer:
            private = len(self.readers_of_input[value]) == 1 and None not in self.readers_of_input[value]
            layer = None
            if private and section:
                layer = block if section == 1 else self.pair_sum + self.layers - self.repeats - block
            known = len(self.clones)
            new = self.clone_value(value, ("input", value, layer))
            if len(self.clones) > known:
                self.inputs.append(new)
            return new
        index, slot = self.producer[value]
        other, other_block, offset = self.place(index)
        if other == 0:
            target = (0, 0, offset)
        elif section == 0:
            target = (other, self.new_block(other, other_block), offset)
        elif section == other:
            target = (other, block + other_block - reader, offset)
        else:
            extra = self.layers - self.repeats
            target = (other, self.pair_sum + extra - block + (other_block - (self.pair_sum - reader)), offset)
        while (target, slot) not in self.made and target[0] and target[1] > 0:
            target = (target[0], target[1] - 1, target[2])
        return self.made[target, slot]

    def emit(self, ops, source, section, block, offset):
        captured = self.graph["ops"][source]
        reader = self.place(source)[1]
        op = {k: captured[k] for k in ("name", "kind", "duration", "workspace", "phase") if k in captured}
        op["inputs"] = sorted({self.resolve_input(v, section, block, reader) for v in captured["inputs"]})
        op["outputs"] = []
        for slot, v in enumerate(captured["outputs"]):
            new = len(self.values)
            self.values.append(dict(self.graph["values"][v]))
            self.made[(section, block, offset), slot] = new
            op["outputs"].append(new)
            if v in self.kept:
                self.outputs.append(new)
        ops.append(op)

    def run(self):
        ops, self.outputs, i = [], [], 0
        while i < len(self.graph["ops"]):
            section, _block, offset = self.place(i)
            if section == 0:
                self.emit(ops, i, 0, 0, offset)
                i += 1
                continue
            start, period, repeats = (self.forward, self.backward)[section - 1]
            for new in range(repeats + self.layers - self.repeats):
                source = start + period * self.original_block(section, new)
                for o in range(period):
                    self.emit(ops, source + o, section, new, o)
            i = start + period * repeats
        return {
            "format": "remat.graph",
            "version": 1,
            "name": f"{self.graph.get('name', 'graph')}_x{self.layers}",
            "time_unit": self.graph.get("time_unit", "ns"),
            "values": self.values,
            "ops": ops,
            "inputs": self.inputs,
            "outputs": self.outputs,
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph")
    parser.add_argument("layers", type=int)
    parser.add_argument("-o", "--output", required=True)
    args = parser.parse_args()
    with open(args.graph) as file:
        unroller = Unroller(json.load(file), args.layers)
    with open(args.output, "w") as file:
        json.dump(unroller.run(), file)


if __name__ == "__main__":
    main()
