// The numbers of the page as src/report/data.cc of the library writes them, and how columns are unpacked.

/** Distinct names with their numbers taken out; which of them each name is; the numbers, as differences. */
export interface NamesData {
  patterns: string[];
  pattern: string;
  numbers: string;
}

export interface PeakBound {
  bytes: number;
  argument: string;
}

export interface PlanData {
  title: string;
  status: string;
  planner: string;
  seed: number;
  /** What was asked when the plan was made, where its file says it. */
  request?: {
    planner: string;
    objective: string;
    time_limit: number | null;
    work_limit: number | null;
    gap_limit: number;
    threads: number;
    options: { [name: string]: string };
  };
  order: string;
  budget: number | null;
  peak: number;
  peak_step: number;
  duration: number;
  overhead: number;
  recomputed_ops: number;
  peak_bound: PeakBound;
  duration_bound: { duration: number; argument: string };
  steps: string;
  /** By step, the bytes of saved states of random generators; absent where the graph has none. */
  generator_states?: string;
  /** Of a plan that was measured when it ran: by step, the most in memory. */
  measured?: string;
  lives: { value: string; first: string; length: string; kind: string };
  /** What a caching allocator takes for it. */
  allocator?: { name: string; allocated: number; reserved: number };
  /** Of a plan with copies. */
  host?: HostData;
}

/** What copies to the host and back do. Bandwidths in bytes per second, times in the graph's unit. */
export interface HostData {
  out: number;
  in: number;
  latency_ns: number;
  budget: number | null;
  shared: boolean;
  peak: number;
  bytes_out: number;
  bytes_in: number;
  busy_out: number;
  busy_in: number;
  stalled: number;
  /** By step, and after the last one. */
  memory: string;
  /** When each step begins. */
  start: string;
  /** way: 0 to the host, 1 back. */
  copies: { value: string; way: string; issue: string; wait: string; begin: string; end: string };
}

export interface CurvePoint {
  budget: number;
  peak: number;
  duration: number;
  bound: number;
  status: string;
  knee: boolean;
}

export interface CurveData {
  planner: string;
  order: string;
  smallest_peak: number;
  /** By which budgets of plans and the points on either side of them differ. */
  apart: number;
  peak_bound: PeakBound;
  stopped_by: string | null;
  seconds: number;
  points: CurvePoint[];
}

export interface GraphData {
  name: string;
  hash: string;
  time_unit: string;
  base_duration: number;
  resident: number;
  keep_all_peak: number;
  kinds: string[];
  modules: NamesData;
  sources: NamesData;
  ops: {
    name: NamesData;
    kind: string;
    module: string;
    source: string;
    phase: string;
    duration: string;
    workspace: string;
    input_count: string;
    inputs: string;
    output_count: string;
    outputs: string;
  };
  values: { name: NamesData; bytes: string };
  inputs: string;
}

export interface ReportData {
  remat: string;
  command: string;
  memory_kinds: string[];
  graph: GraphData;
  plans: PlanData[];
  curves: CurveData[];
}

/** Integers as `pack` in src/report/packed.h writes them, of any size that a double holds exactly. */
export function unpack(text: string): Float64Array {
  const digits = atob(text);
  let at = 0;
  const next = (): number => {
    let digit = digits.charCodeAt(at++);
    if (digit < 0x80) return digit;
    let number = digit & 0x7f;
    for (let scale = 128; digit >= 0x80; scale *= 128) {
      digit = digits.charCodeAt(at++);
      number += (digit & 0x7f) * scale;
    }
    return number;
  };
  const numbers = new Float64Array(next());
  for (let i = 0; i < numbers.length; ) {
    for (let left = next(); left > 0; left--) numbers[i++] = next();
    if (i === numbers.length) break;
    let left = next();
    const distance = next();
    for (; left > 0; left--, i++) numbers[i] = numbers[i - distance];
  }
  return numbers;
}

/** The same of integers that may be negative. */
export function unpackSigned(text: string): Float64Array {
  const numbers = unpack(text);
  for (let i = 0; i < numbers.length; i++) {
    const number = numbers[i];
    if (number < 2 ** 31) numbers[i] = (number >> 1) ^ -(number & 1);
    else numbers[i] = number % 2 === 0 ? number / 2 : -(number + 1) / 2;
  }
  return numbers;
}

/** The same of differences to the number before, or to the one before that has the same context. */
export function unpackDifferences(text: string, contexts?: ArrayLike<number>): Int32Array {
  const differences = unpackSigned(text);
  const numbers = new Int32Array(differences.length);
  const before: number[] = [];
  for (let i = 0; i < numbers.length; i++) {
    const context = contexts ? contexts[i] : 0;
    numbers[i] = (before[context] ?? 0) + differences[i];
    before[context] = numbers[i];
  }
  return numbers;
}

const PLACES = 8;
/** Of the n-th input or output of an op of this kind. */
export function contextOf(kind: number, place: number): number {
  return PLACES * kind + Math.min(place, PLACES - 1);
}

/** Names, each put together when it is asked for. */
export class Names {
  private readonly parts: string[][];
  private readonly pattern: Float64Array;
  private readonly numbers: Float64Array;
  /** Where the numbers of each name begin. */
  private readonly begin: Int32Array;

  constructor(data: NamesData) {
    this.parts = data.patterns.map((text) => text.split("\u0001"));
    this.pattern = unpack(data.pattern);
    this.numbers = unpackSigned(data.numbers);
    this.begin = new Int32Array(this.pattern.length);
    const last = this.parts.map((): number[] => []);
    let at = 0;
    this.pattern.forEach((index, name) => {
      this.begin[name] = at;
      const before = last[index];
      for (let place = 0; place + 1 < this.parts[index].length; place++, at++) {
        this.numbers[at] += before[place] ?? 0;
        before[place] = this.numbers[at];
      }
    });
  }
  get length(): number {
    return this.pattern.length;
  }
  at(name: number): string {
    const parts = this.parts[this.pattern[name]];
    if (!parts) return "";
    let text = parts[0];
    for (let place = 1; place < parts.length; place++)
      text += this.numbers[this.begin[name] + place - 1] + parts[place];
    return text;
  }
}
