// The model as a tree of modules: memory and recomputation of each, with what is below it.
import { button, byId, h, replace } from "./dom";
import { bytes, duration, exactBytes, percent } from "./format";
import { entry } from "./maps";
import { ACTIVATIONS, type Graph, type Plan, RECOMPUTED } from "./model";

const AMOUNTS = ["atPeak", "kept", "again", "time", "paid"] as const;

interface Node_ extends Record<(typeof AMOUNTS)[number], number> {
  name: string;
  path: string;
  children: Map<string, Node_>;
}

function leaf(name: string, path: string): Node_ {
  return { name, path, children: new Map(), atPeak: 0, kept: 0, again: 0, time: 0, paid: 0 };
}

export class Layers {
  private root = leaf("", "");
  private readonly open = new Set<string>([""]);

  constructor(
    private readonly graph: Graph,
    plan: Plan,
  ) {
    if (graph.modules.every((module) => module === "")) {
      byId("layers").hidden = true;
      for (const link of document.querySelectorAll<HTMLElement>('a[href="#layers"]')) link.hidden = true;
      return;
    }
    replace(
      byId("layers-controls"),
      h(
        "span",
        { class: "buttons" },
        button("Open all", "Open all modules", () => this.openAll()),
        button("Close all", "Close all modules", () => {
          this.open.clear();
          this.open.add("");
          this.draw();
        }),
      ),
    );
    this.show(plan);
  }

  show(plan: Plan): void {
    if (byId("layers").hidden) return;
    this.root = leaf(this.graph.name, "");
    this.sum(plan);
    // A model that is all in one module opens at its parts.
    let only = this.root;
    while (only.children.size === 1) {
      only = [...only.children.values()][0];
      this.open.add(only.path);
    }
    this.draw();
  }

  /** The module and all above it. */
  private chain(module: string): Node_[] {
    const chain = [this.root];
    let path = "";
    for (const name of module === "" ? [] : module.split(".")) {
      path = path ? `${path}.${name}` : name;
      const parent = chain[chain.length - 1];
      const place = path;
      chain.push(entry(parent.children, name, () => leaf(name, place)));
    }
    return chain;
  }

  private sum(plan: Plan): void {
    const { graph } = this;
    const sums = Object.fromEntries(AMOUNTS.map((key) => [key, new Float64Array(graph.modules.length)]));
    const peak = plan.data.peak_step;
    for (let life = 0; life < plan.lifeValue.length; life++) {
      const value = plan.lifeValue[life];
      const module = graph.valueModule[value];
      const size = graph.bytes[value];
      if (plan.lifeFirst[life] <= peak && peak < plan.lifeEnd[life]) sums.atPeak[module] += size;
      if (plan.lifeKind[life] === ACTIVATIONS) sums.kept[module] += size;
      if (plan.lifeKind[life] === RECOMPUTED) sums.again[module] += size;
    }
    for (const value of graph.inputs) sums.atPeak[graph.valueModule[value]] += graph.bytes[value];
    sums.atPeak[graph.opModule[plan.steps[peak]]] += plan.workspace(peak);
    plan.steps.forEach((op, step) => {
      sums.time[graph.opModule[op]] += graph.duration[op];
      if (plan.again[step]) sums.paid[graph.opModule[op]] += graph.duration[op];
    });
    graph.modules.forEach((path, module) => {
      if (AMOUNTS.every((key) => sums[key][module] === 0)) return;
      for (const node of this.chain(path)) for (const key of AMOUNTS) node[key] += sums[key][module];
    });
  }

  private openAll(): void {
    const visit = (node: Node_) => {
      this.open.add(node.path);
      for (const child of node.children.values()) visit(child);
    };
    visit(this.root);
    this.draw();
  }

  private draw(): void {
    const rows: HTMLElement[] = [];
    const visit = (node: Node_, level: number) => {
      rows.push(this.row(node, level));
      if (!this.open.has(node.path)) return;
      const children = [...node.children.values()];
      children.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
      for (const child of children) visit(child, level + 1);
    };
    visit(this.root, 1);
    const heads = ["Module", "At the peak", "Activations kept", "Computed again", "Time", "Of it again"];
    replace(
      byId("layers-table"),
      h(
        "table",
        { class: "layers", role: "treegrid", "aria-label": "Modules" },
        h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, ...rows),
      ),
    );
  }

  private row(node: Node_, level: number): HTMLElement {
    const unit = this.graph.data.graph.time_unit;
    const isOpen = this.open.has(node.path);
    const size = (amount: number, whole: number) =>
      h(
        "td",
        {
          class: "bar",
          title: exactBytes(amount),
          "data-bytes": amount,
          style: `--share: ${whole > 0 ? amount / whole : 0}`,
        },
        amount === 0 ? "–" : bytes(amount),
      );
    const toggle = () => {
      if (!this.open.delete(node.path)) this.open.add(node.path);
      this.draw();
      document
        .querySelector<HTMLElement>(`#layers-table [data-path="${CSS.escape(node.path)}"] button`)
        ?.focus();
    };
    const name = node.name || "(model)";
    return h(
      "tr",
      {
        role: "row",
        "aria-level": level,
        "aria-expanded": node.children.size > 0 ? String(isOpen) : null,
        "data-path": node.path,
      },
      h(
        "th",
        { scope: "row", style: `padding-left: ${0.2 + 1.1 * (level - 1)}rem`, title: node.path },
        node.children.size > 0
          ? h(
              "button",
              {
                type: "button",
                class: "link",
                "aria-label": `${isOpen ? "Close" : "Open"} ${name}`,
                click: toggle,
              },
              h("span", { class: "twist", "aria-hidden": "true" }, isOpen ? "▾" : "▸"),
              name,
            )
          : h("span", { class: "leaf" }, name),
      ),
      size(node.atPeak, this.root.atPeak),
      size(node.kept, this.root.kept),
      size(node.again, Math.max(this.root.again, this.root.kept)),
      h("td", {}, node.time === 0 ? "–" : duration(node.time, unit)),
      h(
        "td",
        { title: percent(node.paid / (node.time || 1)) },
        node.paid === 0 ? "–" : `${duration(node.paid, unit)} (${percent(node.paid / node.time)})`,
      ),
    );
  }
}
