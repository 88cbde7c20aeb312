// What was asked, what was found, what is proved: the cards at the top and the details at the end.
import { most } from "./chart";
import type { PlanData } from "./data";
import { byId, h, replace } from "./dom";
import { bytes, duration, exactBytes, percent } from "./format";
import type { Plan } from "./model";

const STATUS: Record<string, string> = {
  optimal: "optimal: proved that no plan within the budget is faster",
  feasible: "feasible: within the budget; whether a faster plan exists is open",
  infeasible: "infeasible: proved that no plan fits",
  unknown: "unknown: no plan within the budget was found",
};

/** What no plan within the budget is faster than, by all that the page knows. */
function bound(plan: Plan): { duration: number; argument: string } {
  const { budget, order, host, duration_bound } = plan.data;
  if (budget === null || host) return duration_bound;
  const best = plan.graph.bound(budget, order);
  return best.duration > duration_bound.duration ? best : duration_bound;
}

function gap(plan: Plan): number {
  const { duration } = bound(plan);
  return duration > 0 ? Math.max(0, plan.data.duration / duration - 1) : 0;
}

/** The strongest that is true of a plan, in few words, and what they mean. */
function verdict(plan: Plan): [string, string] {
  const { data } = plan;
  if (isOver(plan)) return ["over budget", "to be looked at, not to be run"];
  if (data.planner === "keep_all") return ["fastest", "every op once"];
  if (data.status === "optimal" || (data.status === "feasible" && gap(plan) === 0))
    return ["optimal", "proved: no plan within the budget is faster"];
  if (data.status !== "feasible") return [data.status || "not stated", `within ${nearness(plan)} of optimal`];
  return [`within ${nearness(plan)} of optimal`, "feasible, and proved to be this close to the fastest"];
}

/** The gap in two digits, rounded up. */
function nearness(plan: Plan): string {
  const ratio = Math.max(0.0001, gap(plan));
  const unit = 10 ** (Math.floor(Math.log10(ratio)) - 1);
  return percent(Math.ceil(ratio / unit - 1e-9) * unit);
}

function isOver(plan: Plan): boolean {
  return plan.data.budget !== null && plan.data.peak > plan.data.budget;
}

function status(plan: Plan): string {
  if (isOver(plan)) return "over its budget: to be looked at, not to be run";
  if (plan.data.planner === "keep_all") return "the fastest plan, and the reference for budgets in percent";
  return STATUS[plan.data.status] ?? "not stated";
}

function card(
  title: string,
  value: string,
  aside: string,
  attributes: Record<string, string | number> = {},
): HTMLElement {
  return h(
    "div",
    { class: "fact", ...attributes },
    h("dt", {}, title),
    h("dd", {}, h("b", {}, value), h("span", {}, aside)),
  );
}

/** One sentence that says it all, and four numbers. */
export function showSummary(plan: Plan): void {
  const { data, graph } = plan;
  const { keep_all_peak, time_unit } = graph.data.graph;
  const less = 1 - data.peak / keep_all_peak;
  const sentence =
    data.planner === "keep_all" && data.overhead === 0
      ? `Keeping everything needs ${bytes(data.peak)} and takes ${duration(data.duration, time_unit)}.`
      : `${data.title} needs ${bytes(data.peak)} where keeping everything needs ${bytes(keep_all_peak)} (${percent(less)} less), for ${percent(data.overhead)} more time.`;
  // An amount and its unit stay on one line.
  replace(byId("sentence"), sentence.replace(/(\d) (?=%|[KMGTPE]?i?B\b)/g, "$1\u00a0"));
  const budget = data.budget === null ? "none stated" : bytes(data.budget);
  const room =
    data.budget === null
      ? ""
      : isOver(plan)
        ? `${bytes(data.peak - data.budget)} over`
        : `${bytes(data.budget - data.peak)} left`;
  replace(
    byId("facts"),
    card("Peak", bytes(data.peak), `${percent(data.peak / keep_all_peak)} of keep-all`, {
      id: "fact-peak",
      "data-bytes": data.peak,
    }),
    card("Budget", budget, room),
    card(
      "More time",
      percent(data.overhead),
      `${duration(data.duration, time_unit)} in all, ${data.recomputed_ops} ops again`,
      {
        "data-duration": data.duration,
      },
    ),
    card("Verdict", ...verdict(plan)),
  );
}

function line(name: string, ...values: (string | Node)[]): Node[] {
  return [h("dt", {}, name), h("dd", {}, ...values)];
}

function quoted(text: string): string {
  return /^[\w./:%+-]+$/.test(text) ? text : `'${text}'`;
}

function measuredLine(plan: Plan): Node[] {
  const { measured } = plan;
  if (!measured) return [];
  const peak = most(measured);
  const more = measured.reduce((far, amount, step) => Math.max(far, amount - plan.memory[step]), -peak);
  return line(
    "Measured peak",
    exactBytes(peak),
    more > 0
      ? `, at no step more than ${exactBytes(more)} above the predicted memory`
      : ", no step above the predicted memory",
  );
}

function allocatorLine(plan: Plan): Node[] {
  const { allocator } = plan.data;
  if (!allocator) return [];
  return line(
    "Reserved",
    exactBytes(allocator.reserved),
    ` by the allocator “${allocator.name}”, ${exactBytes(allocator.allocated)} of them allocated at the most`,
  );
}

function hostLines(plan: Plan): Node[] {
  const { host } = plan.data;
  if (!host) return [];
  const unit = plan.graph.data.graph.time_unit;
  const share = (busy: number) => percent(busy / (plan.data.duration || 1));
  return [
    ...line(
      "On the host",
      exactBytes(host.peak),
      " at the most",
      host.budget === null ? "" : `, of ${exactBytes(host.budget)} that it has`,
    ),
    ...line(
      "Copied",
      `${exactBytes(host.bytes_out)} out (channel busy ${share(host.busy_out)}), `,
      `${exactBytes(host.bytes_in)} back (${share(host.busy_in)})`,
    ),
    ...line("Waited for copies", duration(host.stalled, unit)),
  ];
}

/** "--host-out 25000000000 ...", as the command line takes it. */
function hostOptions(plan: Plan): string[] {
  const { host } = plan.data;
  if (!host) return [];
  const parts = [`--host-out ${host.out} --host-in ${host.in}`];
  if (host.latency_ns > 0) parts.push(`--host-latency ${host.latency_ns}ns`);
  if (host.budget !== null) parts.push(`--host-budget ${host.budget}`);
  if (host.shared) parts.push("--host-shared");
  return parts;
}

/** Whether the same command makes the same plan: it counts work, and nothing else ends it. */
function isRepeatable({ data }: Plan): boolean {
  const { request } = data;
  if (data.planner === "keep_all") return true;
  return (
    request !== undefined &&
    request.work_limit !== null &&
    request.time_limit === null &&
    request.threads === 1
  );
}

/** Limits and options, as the command line takes them. */
function effortOptions(request: NonNullable<PlanData["request"]>): string[] {
  const parts = [];
  if (request.work_limit !== null) parts.push(`--work-limit ${request.work_limit}`);
  if (request.time_limit !== null) parts.push(`--time-limit ${request.time_limit}s`);
  if (request.gap_limit !== 1e-4) parts.push(`--gap ${Number((100 * request.gap_limit).toPrecision(12))}%`);
  if (request.threads !== 1) parts.push(`--threads ${request.threads}`);
  for (const [name, value] of Object.entries(request.options))
    parts.push(`--set ${quoted(name)}=${quoted(value)}`);
  return parts;
}

/** How the plan can be made again, as far as its file says. */
function recipe(plan: Plan): string {
  const { data } = plan;
  const { request } = data;
  const parts = ["remat plan GRAPH"];
  const planner = request?.planner || data.planner;
  if (data.budget !== null) parts.push(`--budget ${data.budget}`);
  if (request ? request.objective === "peak" : data.budget === null && data.planner !== "keep_all") {
    parts.push("--objective peak");
  }
  if (planner) parts.push(`--planner ${quoted(planner)}`);
  if (data.order !== "fixed") parts.push(`--order ${data.order}`);
  if (data.seed !== 0) parts.push(`--seed ${data.seed}`);
  if (request) parts.push(...effortOptions(request));
  parts.push(...hostOptions(plan));
  return parts.join(" ");
}

export function showVerdicts(plans: Plan[]): void {
  const { graph } = plans[0];
  const { name, hash, time_unit, keep_all_peak, base_duration, resident } = graph.data.graph;
  const sections = plans.map(({ data }, i) =>
    h(
      "div",
      { class: "verdict" },
      h("h3", {}, data.title),
      h(
        "dl",
        {},
        ...line("Status", status(plans[i])),
        ...line("Peak", exactBytes(data.peak), `, at step ${data.peak_step} of ${plans[i].steps.length}`),
        ...allocatorLine(plans[i]),
        ...measuredLine(plans[i]),
        ...line(
          "No plan is below",
          exactBytes(data.peak_bound.bytes),
          `, by the bound “${data.peak_bound.argument}”`,
        ),
        ...line(
          "Duration",
          duration(data.duration, time_unit),
          `, ${percent(data.overhead)} more than every op once`,
        ),
        ...line(
          "No plan is faster than",
          duration(bound(plans[i]).duration, time_unit),
          data.budget === null ? "" : " within the budget",
          `, by the bound “${bound(plans[i]).argument}”`,
        ),
        ...line("Gap", percent(gap(plans[i]))),
        ...hostLines(plans[i]),
        ...line("Recomputed", `${data.recomputed_ops} of ${plans[i].steps.length} steps`),
        ...line("Planner", data.planner || "not stated", `, ${data.order} order, seed ${data.seed}`),
        ...line(isRepeatable(plans[i]) ? "Made again by" : "Similar by", h("code", {}, recipe(plans[i]))),
      ),
    ),
  );
  replace(
    byId("verdict-body"),
    ...sections,
    h(
      "div",
      { class: "verdict" },
      h("h3", {}, "Graph and page"),
      h(
        "dl",
        {},
        ...line("Graph", name),
        ...line("Hash", h("code", {}, hash)),
        ...line("Size", `${graph.ops} ops, ${graph.bytes.length} values, inputs of ${exactBytes(resident)}`),
        ...line("Keep-all peak", exactBytes(keep_all_peak)),
        ...line("Every op once", duration(base_duration, time_unit)),
        ...line(
          "Made by",
          h("code", {}, graph.data.command || "remat.report"),
          `, Remat ${graph.data.remat}`,
        ),
      ),
    ),
  );
}

/** Two plans in numbers, next to each other. */
export function showComparison(plans: Plan[]): void {
  const holder = byId("comparison");
  holder.hidden = plans.length < 2;
  if (plans.length < 2) {
    replace(holder);
    return;
  }
  const unit = plans[0].graph.data.graph.time_unit;
  const kinds = plans[0].graph.data.memory_kinds;
  const rows: [string, (plan: Plan) => number, (amount: number) => string][] = [
    ["Peak", (p) => p.data.peak, bytes],
    ["Allocated at the most", (p) => p.data.allocator?.allocated ?? 0, bytes],
    ["Reserved at the most", (p) => p.data.allocator?.reserved ?? 0, bytes],
    ["Duration", (p) => p.data.duration, (d) => duration(d, unit)],
    ["More time", (p) => p.data.overhead, percent],
    ["Steps", (p) => p.steps.length, String],
    ["Ops computed again", (p) => p.data.recomputed_ops, String],
    ["Copied to the host", (p) => p.data.host?.bytes_out ?? 0, bytes],
    ["Waited for copies", (p) => p.data.host?.stalled ?? 0, (d) => duration(d, unit)],
    ...kinds.map((kind, i): [string, (plan: Plan) => number, (amount: number) => string] => [
      `At the peak: ${kind}`,
      (p) => p.byKind[i][p.data.peak_step],
      bytes,
    ]),
  ];
  const [a, b] = plans;
  replace(
    holder,
    h(
      "table",
      { class: "comparison" },
      h("caption", { class: "hidden" }, "Two plans side by side"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "Number"),
          ...plans.map((p) => h("th", { scope: "col" }, p.title)),
          h("th", { scope: "col" }, "Difference"),
        ),
      ),
      h(
        "tbody",
        {},
        ...rows
          .filter(([, get]) => plans.some((p) => get(p) !== 0))
          .map(([name, get, say]) => {
            const difference = get(a) - get(b);
            return h(
              "tr",
              {},
              h("th", { scope: "row" }, name),
              ...plans.map((p) => h("td", {}, say(get(p)))),
              h(
                "td",
                {},
                difference === 0 ? "same" : `${difference > 0 ? "+" : "−"}${say(Math.abs(difference))}`,
              ),
            );
          }),
      ),
    ),
  );
}
