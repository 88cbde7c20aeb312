// What is in memory at one step, and the life of one value.
import { button, h } from "./dom";
import { bytes, count, duration, exactBytes, percent } from "./format";
import type { Grouping } from "./groups";
import { entry } from "./maps";
import type { CopyOfValue, Plan, Stack } from "./model";

const MOST_ROWS = 25;

export function swatch(colour: string): HTMLElement {
  return h("i", { class: "swatch", style: `background: var(--${colour})`, "aria-hidden": "true" });
}

/** "decoder.3 · aten.mm · forward"; what is empty is left out. */
function aside(...parts: string[]): string {
  return parts.filter(Boolean).join(" · ");
}

export function stepHeading(plan: Plan, step: number, named: boolean, pinned: boolean): HTMLElement {
  const { graph } = plan;
  const op = plan.steps[step];
  const again = plan.again[step] ? "computed again" : "";
  return h(
    "div",
    { class: "at" },
    h(
      "h3",
      { id: "at-step", "data-step": step },
      `Step ${step} of ${plan.steps.length}`,
      named ? ` · ${plan.title}` : "",
    ),
    h(
      "p",
      { class: "op" },
      h("b", {}, graph.op(op)),
      again ? h("span", { class: "tag again" }, again) : null,
    ),
    h("p", { class: "aside" }, aside(graph.kind(op), graph.module(op), graph.phase(op))),
    graph.source(op) ? h("p", { class: "aside", id: "source" }, graph.source(op)) : null,
    h(
      "p",
      { class: "total", id: "total", "data-bytes": plan.memory[step] },
      h("b", {}, bytes(plan.memory[step])),
      " in memory",
    ),
    plan.host &&
      h(
        "p",
        { class: "aside", id: "on-host", "data-bytes": plan.host.memory[step] },
        `${bytes(plan.host.memory[step])} on the host besides`,
      ),
    plan.measured &&
      h(
        "p",
        { class: "measured", "data-bytes": plan.measured[step] },
        h("b", {}, bytes(plan.measured[step])),
        ` measured, ${difference(plan.measured[step] - plan.memory[step])}`,
      ),
    h(
      "p",
      { class: "aside" },
      pinned ? "held; Esc or a click on the chart lets go" : "click to hold this step",
    ),
  );
}

function difference(more: number): string {
  return more === 0
    ? "as predicted"
    : `${bytes(Math.abs(more))} ${more > 0 ? "more" : "less"} than predicted`;
}

const empty = new WeakMap<Float64Array, boolean>();
/** True where a plan never has such memory. */
function isEmpty(column: Float64Array): boolean {
  return entry(empty, column, () => column.every((bytes) => bytes === 0));
}

/** The legend, with the bytes of this step. */
export function groupTable(plan: Plan, grouping: Grouping, step: number): HTMLElement {
  const stack = stackOnce(plan, grouping);
  const total = plan.memory[step] || 1;
  const body = h("tbody");
  for (let group = grouping.names.length - 1; group >= 0; group--) {
    const sum = stack[group][step];
    if (sum === 0 && isEmpty(stack[group])) continue;
    body.append(
      h(
        "tr",
        { class: sum === 0 ? "none" : "", "data-group": grouping.names[group], "data-bytes": sum },
        h("th", { scope: "row" }, swatch(grouping.colours[group]), grouping.names[group]),
        h("td", { title: exactBytes(sum) }, sum === 0 ? "–" : bytes(sum)),
        h("td", {}, sum === 0 ? "" : percent(sum / total)),
      ),
    );
  }
  return h(
    "table",
    { class: "legend" },
    h("caption", { class: "hidden" }, "Memory of this step by kind"),
    body,
  );
}

const stacks = new WeakMap<Grouping, WeakMap<Plan, Stack>>();
/** A stack is asked for at every move of the pointer. */
function stackOnce(plan: Plan, grouping: Grouping): Stack {
  const known = entry(stacks, grouping, () => new WeakMap<Plan, Stack>());
  return entry(known, plan, () => grouping.stackOf(plan));
}

/** The largest of what is alive; a click on one shows its life. */
export function aliveTable(
  plan: Plan,
  grouping: Grouping,
  step: number,
  look: (value: number) => void,
): HTMLElement {
  const { graph } = plan;
  const rows: { value: number; group: number; first: number; end: number }[] = plan
    .alive(step)
    .map((life) => ({
      value: plan.lifeValue[life],
      group: grouping.ofLife(plan, life),
      first: plan.lifeFirst[life],
      end: plan.lifeEnd[life],
    }));
  for (const value of graph.inputs)
    rows.push({ value, group: grouping.ofInput(value), first: 0, end: plan.steps.length });
  rows.sort((a, b) => graph.bytes[b.value] - graph.bytes[a.value] || a.first - b.first || a.value - b.value);
  const body = h("tbody");
  for (const { value, group, first, end } of rows.slice(0, MOST_ROWS)) {
    body.append(
      h(
        "tr",
        { "data-value": value, "data-bytes": graph.bytes[value] },
        h("td", { title: exactBytes(graph.bytes[value]) }, bytes(graph.bytes[value])),
        h(
          "td",
          { class: "what" },
          swatch(grouping.colours[group]),
          h(
            "button",
            {
              type: "button",
              class: "link",
              title: aside(graph.value(value), graph.kindOfValue(value), graph.moduleOfValue(value)),
              click: () => look(value),
            },
            graph.value(value),
          ),
          h("span", { class: "aside" }, graph.moduleOfValue(value)),
        ),
        h(
          "td",
          { class: "aside" },
          first === 0 && end === plan.steps.length ? "always" : `${first}–${end - 1}`,
        ),
      ),
    );
  }
  const rest = rows.slice(MOST_ROWS);
  const restBytes = rest.reduce((sum, row) => sum + graph.bytes[row.value], 0);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "alive" },
      h("caption", {}, `In memory, largest first (${count(rows.length, "value")})`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "Size"),
          h("th", { scope: "col" }, "Value"),
          h("th", { scope: "col" }, "Steps"),
        ),
      ),
      body,
    ),
    rest.length > 0
      ? h("p", { class: "aside" }, `and ${count(rest.length, "other")}, ${bytes(restBytes)} together`)
      : null,
  );
}

const MOST_LINKS = 12;

/** A list of steps to go to. */
function stepLinks(plan: Plan, steps: number[], go: (step: number) => void): HTMLElement {
  const list = h("ul", { class: "steps" });
  for (const step of steps.slice(0, MOST_LINKS)) {
    const op = plan.steps[step];
    list.append(
      h(
        "li",
        {},
        h("button", { type: "button", class: "link", click: () => go(step) }, `step ${step}`),
        ` ${plan.graph.op(op)}`,
        plan.again[step] ? h("span", { class: "tag again" }, "computed again") : null,
      ),
    );
  }
  if (steps.length > MOST_LINKS)
    list.append(h("li", { class: "aside" }, `and ${steps.length - MOST_LINKS} more`));
  return list;
}

/** "To the host: issued after step 3, waited for before step 7". */
function copyLine(plan: Plan, copy: CopyOfValue, go: (step: number) => void): HTMLElement {
  const last = plan.steps.length - 1;
  const link = (step: number) =>
    h("button", { type: "button", class: "link", click: () => go(Math.min(step, last)) }, `step ${step}`);
  const wait = copy.wait > last ? "the end" : link(copy.wait);
  const taken = duration(copy.end - copy.begin, plan.graph.data.graph.time_unit);
  const from = copy.out
    ? ["To the host: issued after ", link(copy.issue)]
    : ["Back: room from ", link(copy.issue)];
  return h("p", { class: "copy" }, ...from, ", waited for before ", wait, `; ${taken} on its channel`);
}

interface CardActions {
  go: (step: number) => void;
  close: () => void;
}

/** The life of a value: when it is in memory, who makes it, how often, who reads it. */
export function valueCard(plan: Plan, value: number, actions: CardActions): HTMLElement {
  const { graph } = plan;
  const op = graph.maker[value];
  const unit = graph.data.graph.time_unit;
  const parts: (Node | null)[] = [];
  if (op < 0) {
    parts.push(h("p", {}, "An input of the graph: in memory from the first step to the last."));
    const steps = [...graph.readers(value)]
      .flatMap((reader) => [...plan.runsOf(reader)])
      .sort((a, b) => a - b);
    parts.push(h("h4", {}, `Read by ${count(steps.length, "step")}`), stepLinks(plan, steps, actions.go));
  } else {
    const lives = [...plan.livesOf(value)];
    const runs = plan.runsOf(op).length;
    const extra = duration(graph.duration[op] * (runs - 1), unit);
    parts.push(
      h(
        "p",
        {},
        "Made by ",
        h("b", {}, graph.op(op)),
        ` (${aside(graph.kind(op), graph.module(op), graph.phase(op), graph.source(op))})`,
      ),
      h(
        "p",
        {},
        runs > 1
          ? `Computed ${runs} times; again: ${count(runs - 1, "run")}, ${extra} more.`
          : "Computed once.",
      ),
    );
    for (const copy of plan.host?.copiesOf(value) ?? []) parts.push(copyLine(plan, copy, actions.go));
    for (const life of lives) {
      const [first, end] = [plan.lifeFirst[life], plan.lifeEnd[life]];
      const kind = graph.data.memory_kinds[plan.lifeKind[life]];
      const readers = plan.readersOf(life);
      parts.push(
        h(
          "h4",
          {},
          `Steps ${first} to ${end - 1}: ${kind}`,
          h("span", { class: "aside" }, ` ${count(end - first, "step")}`),
        ),
        readers.length > 0
          ? stepLinks(plan, readers, actions.go)
          : h("p", { class: "aside" }, "read by no step"),
      );
    }
  }
  return h(
    "section",
    { class: "card", "aria-label": "Life of a value" },
    h("div", { class: "card-head" }, h("h3", {}, graph.value(value)), button("×", "Close", actions.close)),
    h("p", { class: "total", "data-bytes": graph.bytes[value] }, h("b", {}, bytes(graph.bytes[value]))),
    ...parts,
  );
}
