// The graph and its plans, unpacked, with what every part of the page asks of them.
import {
  contextOf,
  type HostData,
  Names,
  type PlanData,
  type ReportData,
  unpack,
  unpackDifferences,
} from "./data";
import { entry } from "./maps";

export const PARAMETERS = 0;
export const INPUTS = 1;
export const OUTPUTS = 2;
export const ACTIVATIONS = 3;
export const RECOMPUTED = 4;
export const COPIED = 7;
export const WORKSPACE = 8;
export const LOSS = 2;
export const BACKWARD = 3;
const PHASES = ["", "forward", "loss", "backward", "update"];

/** Rows of integers, stored back to back. */
class Rows {
  constructor(
    readonly begin: Int32Array,
    readonly items: Int32Array,
  ) {}
  static of(counts: ArrayLike<number>, items: Int32Array): Rows {
    const begin = new Int32Array(counts.length + 1);
    for (let i = 0; i < counts.length; i++) begin[i + 1] = begin[i] + counts[i];
    return new Rows(begin, items);
  }
  /** For each of `keys` distinct keys the positions that have it, ascending. */
  static positions(column: Int32Array, keys: number): Rows {
    const begin = new Int32Array(keys + 1);
    for (const key of column) begin[key + 1]++;
    for (let k = 0; k < keys; k++) begin[k + 1] += begin[k];
    const at = begin.slice();
    const items = new Int32Array(column.length);
    for (let i = 0; i < column.length; i++) items[at[column[i]]++] = i;
    return new Rows(begin, items);
  }
  row(i: number): Int32Array {
    return this.items.subarray(this.begin[i], this.begin[i + 1]);
  }
}

export class Graph {
  readonly name: string;
  /** Paths of modules, each once. */
  readonly modules: string[];
  readonly ops: number;
  readonly opKind: Float64Array;
  readonly opModule: Int32Array;
  readonly opPhase: Float64Array;
  readonly duration: Float64Array;
  readonly workspace: Float64Array;
  readonly opInputs: Rows;
  readonly opOutputs: Rows;
  readonly bytes: Float64Array;
  /** Of each value, in `modules`. */
  readonly valueModule: Int32Array;
  /** The op that makes a value, -1 for inputs of the graph. */
  readonly maker: Int32Array;
  readonly inputs: Int32Array;
  /** Which values' lives are alike: made by ops of one kind, at the same place. */
  readonly likes: Int32Array;
  private readonly opName: Names;
  private readonly opSource: Int32Array;
  private readonly sources: Names;
  private readonly valueName: Names;
  private readers_: Rows | null = null;

  constructor(readonly data: ReportData) {
    const { ops, values, inputs } = data.graph;
    this.name = data.graph.name || "graph";
    const modules = new Names(data.graph.modules);
    this.modules = Array.from({ length: modules.length }, (_, i) => modules.at(i));
    this.opName = new Names(ops.name);
    this.ops = this.opName.length;
    this.opKind = unpack(ops.kind);
    this.opModule = unpackDifferences(ops.module);
    this.opPhase = unpack(ops.phase);
    this.opSource = unpackDifferences(ops.source);
    this.sources = new Names(data.graph.sources);
    this.duration = unpack(ops.duration);
    this.workspace = unpack(ops.workspace);
    const inputCounts = unpack(ops.input_count);
    this.opInputs = Rows.of(inputCounts, unpackDifferences(ops.inputs, this.contexts(inputCounts)));
    this.opOutputs = Rows.of(unpack(ops.output_count), unpackDifferences(ops.outputs));
    this.bytes = unpack(values.bytes);
    this.valueName = new Names(values.name);
    this.inputs = unpackDifferences(inputs);
    this.maker = new Int32Array(this.bytes.length).fill(-1);
    this.likes = new Int32Array(this.bytes.length);
    this.valueModule = new Int32Array(this.bytes.length);
    for (let op = 0; op < this.ops; op++)
      this.opOutputs.row(op).forEach((value, place) => {
        this.maker[value] = op;
        this.likes[value] = contextOf(this.opKind[op], place);
        this.valueModule[value] = this.opModule[op];
      });
    this.nameInputs();
  }

  /** Of all inputs of ops, in sequence. */
  private contexts(counts: ArrayLike<number>): number[] {
    const contexts: number[] = [];
    for (let op = 0; op < this.ops; op++)
      for (let place = 0; place < counts[op]; place++) contexts.push(contextOf(this.opKind[op], place));
    return contexts;
  }

  /** Parameters belong to the modules that their names begin with. */
  private nameInputs(): void {
    const known = new Map(this.modules.map((path, i) => [path, i]));
    for (const value of this.inputs) {
      const named = /^(?:parameter|buffer) (.+)$/.exec(this.valueName.at(value));
      const path = named ? named[1].replace(/\.?[^.]*$/, "") : "";
      this.valueModule[value] = entry(known, path, () => this.modules.push(path) - 1);
    }
  }

  /**
   * What no plan of this order within a budget is faster than, by the curve and by the plans' own bounds, which
   * hold for all smaller budgets too; and the name of the argument that proves it.
   */
  bound(budget: number, order: string): { duration: number; argument: string } {
    let best = { duration: this.data.graph.base_duration, argument: "every op once" };
    const raise = (duration: number, argument: string) => {
      if (duration > best.duration) best = { duration, argument };
    };
    const [curve] = this.data.curves;
    const points = curve?.order === order ? curve.points : [];
    for (const point of points) if (point.budget >= budget) raise(point.bound, "of the curve");
    for (const plan of this.data.plans) {
      if (plan.budget === null || plan.budget < budget || plan.order !== order || plan.host) continue;
      const { duration, argument } = plan.duration_bound;
      // A curve of plans with copies goes below what is proved without.
      const isBelow = points.some((p) => p.peak <= (plan.budget ?? 0) && p.duration < duration);
      if (!isBelow) raise(duration, argument);
    }
    return best;
  }

  op(op: number): string {
    return this.opName.at(op) || `op ${op}`;
  }
  kind(op: number): string {
    return this.data.graph.kinds[this.opKind[op]];
  }
  module(op: number): string {
    return this.modules[this.opModule[op]];
  }
  /** "model.py:42", where the capture knows it. */
  source(op: number): string {
    return this.sources.at(this.opSource[op]);
  }
  phase(op: number): string {
    return PHASES[this.opPhase[op]];
  }
  isParameter(value: number): boolean {
    return /^(parameter|buffer)/.test(this.valueName.at(value));
  }
  /** What a person would call the value. */
  value(value: number): string {
    const name = this.valueName.at(value);
    if (name) return name;
    const op = this.maker[value];
    if (op < 0) return `input ${value}`;
    const outputs = this.opOutputs.row(op);
    return outputs.length > 1 ? `${this.op(op)}, output ${outputs.indexOf(value) + 1}` : this.op(op);
  }
  moduleOfValue(value: number): string {
    return this.modules[this.valueModule[value]];
  }
  kindOfValue(value: number): string {
    const op = this.maker[value];
    if (op >= 0) return this.kind(op);
    return this.isParameter(value) ? "parameter" : "input";
  }
  /** Ops that read a value, ascending. */
  readers(value: number): Int32Array {
    if (!this.readers_) {
      const reader = new Int32Array(this.opInputs.items.length);
      for (let op = 0; op < this.ops; op++)
        reader.fill(op, this.opInputs.begin[op], this.opInputs.begin[op + 1]);
      const places = Rows.positions(this.opInputs.items, this.bytes.length);
      this.readers_ = new Rows(
        places.begin,
        places.items.map((place) => reader[place]),
      );
    }
    return this.readers_.row(value);
  }
}

/** A copy to the host or back; steps as in the plan's file, times in the graph's unit. */
export interface CopyOfValue {
  out: boolean;
  issue: number;
  wait: number;
  begin: number;
  end: number;
}

/** The copies of a plan, and what is on the host. */
export class Host {
  /** By step, and after the last one. */
  readonly memory: Float64Array;
  private readonly copiesOfValue = new Map<number, CopyOfValue[]>();

  constructor(readonly data: HostData) {
    this.memory = unpack(data.memory);
    const [value, way, issue, wait, begin, end] = (
      ["value", "way", "issue", "wait", "begin", "end"] as const
    ).map((name) => unpack(data.copies[name]));
    for (let i = 0; i < value.length; i++)
      entry(this.copiesOfValue, value[i], () => []).push({
        out: way[i] === 0,
        issue: issue[i],
        wait: wait[i],
        begin: begin[i],
        end: end[i],
      });
  }
  /** Those that are copied out. */
  values(): Iterable<number> {
    return this.copiesOfValue.keys();
  }
  /** Of a value, in the sequence in which they are issued. */
  copiesOf(value: number): CopyOfValue[] {
    return this.copiesOfValue.get(value) ?? [];
  }
}

/** Sums of bytes of each step, one column for each group. */
export type Stack = Float64Array[];

export class Plan {
  readonly steps: Int32Array;
  readonly lifeValue: Int32Array;
  readonly lifeFirst: Int32Array;
  readonly lifeEnd: Int32Array;
  readonly lifeKind: Float64Array;
  private readonly generatorStates?: Float64Array;
  /** When each step begins, and when the plan ends. */
  readonly start: Float64Array;
  /** 1 where a step runs its op again. */
  readonly again: Uint8Array;
  readonly byKind: Stack;
  readonly memory: Float64Array;
  /** What was measured when the plan ran. */
  readonly measured: Float64Array | null;
  readonly host: Host | null;
  private stepsOfOp: Rows | null = null;
  private livesOfValue: Rows | null = null;

  constructor(
    readonly graph: Graph,
    readonly data: PlanData,
  ) {
    this.steps = unpackDifferences(data.steps);
    this.measured = data.measured === undefined ? null : unpack(data.measured);
    this.lifeValue = unpackDifferences(data.lives.value);
    this.lifeFirst = unpackDifferences(data.lives.first);
    const length = unpackDifferences(
      data.lives.length,
      this.lifeValue.map((value) => graph.likes[value]),
    );
    this.lifeEnd = this.lifeFirst.map((first, i) => first + length[i]);
    this.lifeKind = unpack(data.lives.kind);
    if (data.generator_states) this.generatorStates = unpack(data.generator_states);
    this.host = data.host ? new Host(data.host) : null;
    this.start = new Float64Array(this.steps.length + 1);
    if (data.host) {
      // Steps wait for copies.
      this.start.set(unpack(data.host.start));
      this.start[this.steps.length] = data.duration;
    }
    this.again = new Uint8Array(this.steps.length);
    const ran = new Uint8Array(graph.ops);
    this.steps.forEach((op, i) => {
      if (!data.host) this.start[i + 1] = this.start[i] + graph.duration[op];
      this.again[i] = ran[op];
      ran[op] = 1;
    });
    this.byKind = this.stack(
      graph.data.memory_kinds.length,
      (life) => this.lifeKind[life],
      (value) => (graph.isParameter(value) ? PARAMETERS : INPUTS),
      () => WORKSPACE,
    );
    this.memory = new Float64Array(this.steps.length);
    for (const column of this.byKind) for (let i = 0; i < column.length; i++) this.memory[i] += column[i];
  }

  get title(): string {
    return this.data.title;
  }

  /** Bytes of a step that belong to no instance: its workspace, and generator states saved then. */
  workspace(step: number): number {
    return this.graph.workspace[this.steps[step]] + (this.generatorStates?.[step] ?? 0);
  }

  /** Sums by any grouping of instances, inputs of the graph and workspaces. */
  stack(
    groups: number,
    ofLife: (life: number) => number,
    ofInput: (value: number) => number,
    ofWorkspace: (step: number) => number,
  ): Stack {
    const { graph } = this;
    const n = this.steps.length;
    const columns: Stack = Array.from({ length: groups }, () => new Float64Array(n + 1));
    for (let life = 0; life < this.lifeValue.length; life++) {
      const column = columns[ofLife(life)];
      const bytes = graph.bytes[this.lifeValue[life]];
      column[this.lifeFirst[life]] += bytes;
      column[this.lifeEnd[life]] -= bytes;
    }
    for (const value of graph.inputs) columns[ofInput(value)][0] += graph.bytes[value];
    for (const column of columns) for (let i = 1; i < n; i++) column[i] += column[i - 1];
    for (let i = 0; i < n; i++) columns[ofWorkspace(i)][i] += this.workspace(i);
    return columns.map((column) => column.subarray(0, n));
  }

  /** Instances that are alive at a step, largest first. */
  alive(step: number): number[] {
    const found: number[] = [];
    for (let life = 0; life < this.lifeFirst.length && this.lifeFirst[life] <= step; life++)
      if (step < this.lifeEnd[life]) found.push(life);
    const size = (life: number) => this.graph.bytes[this.lifeValue[life]];
    return found.sort((a, b) => size(b) - size(a) || a - b);
  }

  livesOf(value: number): Int32Array {
    this.livesOfValue ??= Rows.positions(this.lifeValue, this.graph.bytes.length);
    return this.livesOfValue.row(value);
  }
  runsOf(op: number): Int32Array {
    this.stepsOfOp ??= Rows.positions(this.steps, this.graph.ops);
    return this.stepsOfOp.row(op);
  }
  /** Steps that read an instance, ascending. */
  readersOf(life: number): number[] {
    const steps: number[] = [];
    for (const op of this.graph.readers(this.lifeValue[life]))
      for (const step of this.runsOf(op))
        if (this.lifeFirst[life] < step && step < this.lifeEnd[life]) steps.push(step);
    return steps.sort((a, b) => a - b);
  }
  /** By step, what another plan needs when it is as far: at the latest first run. */
  memoryOf(other: Plan): Float64Array {
    const memory = new Float64Array(this.steps.length);
    let last = 0;
    this.steps.forEach((op, step) => {
      if (!this.again[step]) last = other.memory[other.runsOf(op)[0]];
      memory[step] = last;
    });
    return memory;
  }
  /** The first step of an op of this phase or a later one, or the number of steps. */
  firstOf(phase: number): number {
    const step = this.steps.findIndex((op) => this.graph.opPhase[op] >= phase);
    return step < 0 ? this.steps.length : step;
  }

  /** The step that runs at a time. */
  stepAt(time: number): number {
    let low = 0;
    let high = this.steps.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.start[middle] <= time) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}
