// The price list: what a plan saves at the peak, and the time that it pays for it, by module, kind or value.
import { byId, choice, h, replace } from "./dom";
import { bytes, count, duration, exactBytes, percent } from "./format";
import { depths, namesOfModules } from "./groups";
import { entry } from "./maps";
import { ACTIVATIONS, type Graph, type Plan, RECOMPUTED } from "./model";

interface Row {
  name: string;
  /** Bytes at keep-all's peak and at the plan's. */
  before: number;
  after: number;
  kept: number;
  again: number;
  copied: number;
  runs: number;
  time: number;
}
type Column = "name" | "before" | "after" | "saved" | "kept" | "again" | "copied" | "runs" | "time" | "price";

const COLUMNS: [Column, string, string][] = [
  ["name", "Name", "Sort by name"],
  ["before", "At keep-all's peak", "bytes in memory at the peak when everything is kept"],
  ["after", "At this peak", "bytes in memory at the peak of this plan"],
  ["saved", "Saved", "the difference of the two"],
  ["kept", "Activations kept", "bytes that are kept for the backward half"],
  ["again", "Computed again", "bytes of instances made by recomputations"],
  ["copied", "Copied out", "bytes that leave for the host and come back"],
  ["runs", "Extra runs", "steps beyond the first run of each op"],
  ["time", "Time paid", "what the extra runs take"],
  ["price", "Time for a GiB", "time paid for each GiB saved"],
];
const NOTHING = { before: 0, after: 0, kept: 0, again: 0, copied: 0, runs: 0, time: 0 };
const PAGE = 50;
const GIB = 2 ** 30;

function saved(row: Row): number {
  return row.before - row.after;
}
function cell(row: Row, column: Column): number | string {
  if (column === "name") return row.name;
  if (column === "saved") return saved(row);
  if (column === "price") return row.time > 0 && saved(row) > 0 ? (row.time * GIB) / saved(row) : 0;
  return row[column];
}

/** Sums by the name that `ofValue` and `ofOp` give. */
export function priceRows(
  plan: Plan,
  keepAll: Plan,
  ofValue: (value: number) => string,
  ofOp: (op: number) => string,
): Row[] {
  const { graph } = plan;
  const rows = new Map<string, Row>();
  const row = (name: string): Row => entry(rows, name, () => ({ name, ...NOTHING }));
  for (const [shown, key] of [
    [keepAll, "before"],
    [plan, "after"],
  ] as const) {
    const step = shown.data.peak_step;
    for (const life of shown.alive(step)) {
      const value = shown.lifeValue[life];
      row(ofValue(value))[key] += graph.bytes[value];
    }
    for (const value of graph.inputs) row(ofValue(value))[key] += graph.bytes[value];
    row(ofOp(shown.steps[step]))[key] += shown.workspace(step);
  }
  for (let life = 0; life < plan.lifeValue.length; life++) {
    const value = plan.lifeValue[life];
    if (plan.lifeKind[life] === ACTIVATIONS) row(ofValue(value)).kept += graph.bytes[value];
    if (plan.lifeKind[life] === RECOMPUTED) row(ofValue(value)).again += graph.bytes[value];
  }
  for (const value of plan.host?.values() ?? []) row(ofValue(value)).copied += graph.bytes[value];
  plan.again.forEach((again, step) => {
    if (!again) return;
    const paid = row(ofOp(plan.steps[step]));
    paid.runs++;
    paid.time += graph.duration[plan.steps[step]];
  });
  return [...rows.values()];
}

export class Prices {
  private by: string;
  private only: "all" | "kept" | "again" | "copied" = "all";
  private text = "";
  private sort: Column = "saved";
  private falling = true;
  private limit = PAGE;
  private rows: Row[] = [];

  constructor(
    private readonly graph: Graph,
    private plan: Plan,
    private readonly keepAll: Plan,
  ) {
    const modules = depths(graph);
    this.by = modules.length > 0 ? `${Math.min(2, modules.length)}` : "kind";
    const groups: [string, string][] = modules.map((d) => [`${d}`, `module, ${count(d, "name")} deep`]);
    groups.push(["kind", "kind of op"], ["value", "value"]);
    const filter = h("input", {
      type: "search",
      placeholder: "part of a name",
      input: () => {
        this.text = filter.value.toLowerCase();
        this.limit = PAGE;
        this.draw();
      },
    });
    replace(
      byId("prices-controls"),
      choice("By", groups, this.by, (value) => {
        this.by = value;
        this.limit = PAGE;
        this.compute();
      }),
      choice(
        "Show",
        [
          ["all", "everything"],
          ["kept", graph.data.memory_kinds[ACTIVATIONS]],
          ["again", "computed again"],
          ...(this.plan.host ? [["copied", "copied to the host"] as [string, string]] : []),
        ],
        this.only,
        (value) => {
          this.only = value as typeof this.only;
          this.draw();
        },
      ),
      h("label", { class: "choice" }, h("span", {}, "Filter"), filter),
    );
    this.compute();
  }

  show(plan: Plan): void {
    this.plan = plan;
    this.compute();
  }

  private compute(): void {
    const { graph } = this;
    if (this.by === "kind") {
      this.rows = priceRows(
        this.plan,
        this.keepAll,
        (v) => graph.kindOfValue(v) || "(no kind)",
        (op) => graph.kind(op) || "(no kind)",
      );
    } else if (this.by === "value") {
      const first = (op: number) => graph.opOutputs.row(op)[0];
      const name = (v: number) => (graph.maker[v] < 0 ? graph.value(v) : `${graph.value(v)} (value ${v})`);
      this.rows = priceRows(this.plan, this.keepAll, name, (op) =>
        first(op) === undefined ? graph.op(op) : name(first(op)),
      );
    } else {
      const names = namesOfModules(graph, Number.parseInt(this.by, 10));
      this.rows = priceRows(
        this.plan,
        this.keepAll,
        (v) => names[graph.valueModule[v]],
        (op) => names[graph.opModule[op]],
      );
    }
    this.draw();
  }

  private wanted(): Row[] {
    const { sort } = this;
    const rows = this.rows.filter(
      (row) =>
        row.name.toLowerCase().includes(this.text) &&
        (this.only === "all" || (this.only === "again" ? row.runs > 0 : row[this.only] > 0)),
    );
    rows.sort((a, b) => {
      const [x, y] = [cell(a, sort), cell(b, sort)];
      const order =
        typeof x === "string" ? x.localeCompare(String(y), "en", { numeric: true }) : Number(y) - x;
      return (this.falling ? order : -order) || a.name.localeCompare(b.name, "en", { numeric: true });
    });
    return rows;
  }

  private draw(): void {
    const rows = this.wanted();
    const total: Row = { name: `All ${count(rows.length, "row")}`, ...NOTHING };
    for (const row of rows)
      for (const key of ["before", "after", "kept", "again", "copied", "runs", "time"] as const)
        total[key] += row[key];
    const body = h("tbody", {}, ...rows.slice(0, this.limit).map((row) => this.line(row, "")));
    const more = rows.length - this.limit;
    replace(
      byId("prices-table"),
      h(
        "table",
        { class: "prices" },
        h("caption", { class: "hidden" }, `What ${this.plan.title} keeps, saves and computes again`),
        h("thead", {}, h("tr", {}, ...this.heads())),
        body,
        h("tfoot", {}, this.line(total, "sum")),
      ),
      more > 0 &&
        h(
          "button",
          {
            type: "button",
            click: () => {
              this.limit += 4 * PAGE;
              this.draw();
            },
          },
          `Show more of ${count(more, "other row")}`,
        ),
    );
  }

  private heads(): HTMLElement[] {
    const kept = this.graph.data.memory_kinds[ACTIVATIONS];
    const named = kept[0].toUpperCase() + kept.slice(1);
    const shown = COLUMNS.filter(([column]) => column !== "copied" || this.plan.host);
    return shown.map(([column, text, title]) => this.head(column, column === "kept" ? named : text, title));
  }

  private head(column: Column, text: string, title: string): HTMLElement {
    const sorted = this.sort === column;
    const click = () => {
      this.falling = sorted ? !this.falling : true;
      this.sort = column;
      this.draw();
      document.querySelector<HTMLElement>(`#prices-table [data-column="${column}"]`)?.focus();
    };
    const rising = column === "name" ? this.falling : !this.falling;
    return h(
      "th",
      { scope: "col", "aria-sort": sorted ? (rising ? "ascending" : "descending") : "none" },
      h(
        "button",
        { type: "button", title, "data-column": column, click },
        text,
        h("span", { "aria-hidden": "true" }, sorted ? (rising ? " ▲" : " ▼") : ""),
      ),
    );
  }

  private line(row: Row, kind: string): HTMLElement {
    const unit = this.graph.data.graph.time_unit;
    const size = (amount: number, column: Column) =>
      h(
        "td",
        { "data-column": column, "data-bytes": amount, title: exactBytes(amount) },
        amount === 0 ? "–" : bytes(amount),
      );
    const price = Number(cell(row, "price"));
    const share = row.time / (this.graph.data.graph.base_duration || 1);
    return h(
      "tr",
      { class: kind },
      h("th", { scope: "row", title: row.name }, row.name),
      size(row.before, "before"),
      size(row.after, "after"),
      size(saved(row), "saved"),
      size(row.kept, "kept"),
      size(row.again, "again"),
      this.plan.host && size(row.copied, "copied"),
      h("td", { "data-column": "runs", "data-count": row.runs }, row.runs === 0 ? "–" : String(row.runs)),
      h(
        "td",
        { "data-column": "time", "data-duration": row.time },
        row.time === 0 ? "–" : `${duration(row.time, unit)} (${percent(share)})`,
      ),
      h("td", {}, price === 0 ? "–" : duration(price, unit)),
    );
  }
}
