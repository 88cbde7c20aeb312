// How memory is told apart in the timeline: by what it is for, or by module.
import { type Graph, INPUTS, PARAMETERS, type Plan, type Stack } from "./model";

export interface Grouping {
  names: string[];
  /** Of the theme, one for each name. */
  colours: string[];
  stackOf(plan: Plan): Stack;
  ofLife(plan: Plan, life: number): number;
  ofInput(value: number): number;
}

const KIND_COLOURS = [
  "parameters",
  "inputs",
  "outputs",
  "activations",
  "again",
  "gradients",
  "short",
  "copied",
  "workspace",
];

export function byKind(graph: Graph): Grouping {
  return {
    names: graph.data.memory_kinds,
    colours: KIND_COLOURS,
    stackOf: (plan) => plan.byKind,
    ofLife: (plan, life) => plan.lifeKind[life],
    ofInput: (value) => (graph.isParameter(value) ? PARAMETERS : INPUTS),
  };
}

/** The first names of a module's path. */
function prefix(module: string, depth: number): string {
  return module.split(".").slice(0, depth).join(".");
}

/** What each of the graph's modules counts as. */
export function namesOfModules(graph: Graph, depth: number): string[] {
  return graph.modules.map((path) => prefix(path, depth) || "(no module)");
}

const MOST_GROUPS = 8;

/** By the first names of the module, the largest groups by their own, all else together. */
export function byModule(graph: Graph, plan: Plan, depth: number): Grouping {
  const nameOfModule = namesOfModules(graph, depth);
  const nameOf = (value: number) => nameOfModule[graph.valueModule[value]];
  const sums = new Map<string, number>();
  const add = (name: string, amount: number) => sums.set(name, (sums.get(name) ?? 0) + amount);
  for (const life of plan.alive(plan.data.peak_step))
    add(nameOf(plan.lifeValue[life]), graph.bytes[plan.lifeValue[life]]);
  for (const value of graph.inputs) add(nameOf(value), graph.bytes[value]);
  const names = [...sums.keys()]
    .sort((a, b) => (sums.get(b) ?? 0) - (sums.get(a) ?? 0))
    .slice(0, MOST_GROUPS);
  const index = new Map(names.map((name, i) => [name, i]));
  const rest = names.length;
  names.push("all others", "workspace");
  const ofValue = Int32Array.from(graph.bytes, (_, value) => index.get(nameOf(value)) ?? rest);
  const grouping: Grouping = {
    names,
    colours: [...names.slice(0, rest).map((_, i) => `group-${i}`), "inputs", "workspace"],
    stackOf: (shown) =>
      shown.stack(
        names.length,
        (life) => ofValue[shown.lifeValue[life]],
        (value) => ofValue[value],
        () => rest + 1,
      ),
    ofLife: (shown, life) => ofValue[shown.lifeValue[life]],
    ofInput: (value) => ofValue[value],
  };
  return grouping;
}

/** Depths at which the graph's modules differ. */
export function depths(graph: Graph): number[] {
  const deepest = Math.max(0, ...graph.modules.map((m) => (m ? m.split(".").length : 0)));
  return Array.from({ length: Math.min(deepest, 4) }, (_, i) => i + 1);
}
