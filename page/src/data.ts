// The numbers of the page as src/report/data.cc of the library writes them, and how columns are unpacked.

export interface PeakBound {
  bytes: number;
  argument: string;
}

export interface PlanData {
  title: string;
  status: string;
  planner: string;
  seed: number;
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
  lives: { value: string; first: string; length: string; kind: string };
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
  modules: string[];
  ops: {
    name: string;
    kind: string;
    module: string;
    phase: string;
    duration: string;
    workspace: string;
    input_count: string;
    inputs: string;
    output_count: string;
    outputs: string;
  };
  values: { name: string; bytes: string };
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

/** Integers in base 128 (LEB128) in base64, of any size that a double holds exactly. */
export function unpack(text: string): Float64Array {
  const digits = atob(text);
  let count = 0;
  for (let i = 0; i < digits.length; i++) if (digits.charCodeAt(i) < 0x80) count++;
  const numbers = new Float64Array(count);
  let number = 0;
  let scale = 1;
  let at = 0;
  for (let i = 0; i < digits.length; i++) {
    const digit = digits.charCodeAt(i);
    number += (digit & 0x7f) * scale;
    scale *= 128;
    if (digit >= 0x80) continue;
    numbers[at++] = number;
    number = 0;
    scale = 1;
  }
  return numbers;
}

/** The same of differences between neighbours. */
export function unpackDifferences(text: string): Int32Array {
  const differences = unpack(text);
  const numbers = new Int32Array(differences.length);
  let number = 0;
  for (let i = 0; i < differences.length; i++) {
    const d = differences[i];
    number += d % 2 === 0 ? d / 2 : -(d + 1) / 2;
    numbers[i] = number;
  }
  return numbers;
}

/** Lines, each behind a digit of base 36: with how many characters it begins as the line before does. */
export function unpackNames(text: string): string[] {
  if (text === "") return [];
  const names = text.split("\n");
  names.pop();
  let before = "";
  for (let i = 0; i < names.length; i++) {
    before = before.slice(0, Number.parseInt(names[i][0], 36)) + names[i].slice(1);
    names[i] = before;
  }
  return names;
}
