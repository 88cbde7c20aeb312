// Memory by step: one chart for each plan that is shown, and what is in memory where one points.
import { type Axis, Chart, type Line, most, type Span } from "./chart";
import { button, byId, choice, h, replace } from "./dom";
import { bytes, count, exactBytes } from "./format";
import { byKind, byModule, depths, type Grouping } from "./groups";
import type { Graph, Plan } from "./model";
import { aliveTable, groupTable, stepHeading, valueCard } from "./panel";

interface Pane {
  plan: Plan;
  chart: Chart;
  figure: HTMLElement;
  from: HTMLElement;
}

const LEAST_HEIGHT = 280;
const LEAST_LIST = 160;

/** What a line of the chart is. */
function key(kind: string, text: string): HTMLElement {
  return h("p", { class: `key ${kind}` }, h("i", { "aria-hidden": "true" }), text);
}

export class Timeline {
  private axis: Axis = "step";
  private group = "kind";
  private panes: Pane[] = [];
  private grouping: Grouping;
  private active = 0;
  private step: number;
  private pinned = false;
  private value: number | null = null;
  private pending = 0;
  private shown: Plan[];

  constructor(
    private readonly graph: Graph,
    plans: Plan[],
    private readonly keepAll: Plan,
  ) {
    this.shown = plans;
    this.step = plans[0].data.peak_step;
    this.grouping = byKind(graph);
    this.controls();
    this.show(plans);
    new ResizeObserver(() => this.resize()).observe(byId("charts"));
  }

  /** One plan, or two side by side on one scale. */
  show(plans: Plan[]): void {
    this.shown = plans;
    this.active = 0;
    this.pinned = false;
    this.step = plans[0].data.peak_step;
    this.redraw();
  }

  /** With the colours of the theme and the width of the window. */
  redraw(): void {
    const plan = this.shown[0];
    this.grouping =
      this.group === "kind"
        ? byKind(this.graph)
        : byModule(this.graph, plan, Number.parseInt(this.group, 10));
    for (const pane of this.panes) pane.chart.destroy();
    const charts = byId("charts");
    charts.classList.toggle("two", this.shown.length > 1);
    replace(charts);
    const highest = Math.max(
      ...this.shown.flatMap((p) => [p.data.peak, p.data.budget ?? 0, p.measured ? most(p.measured) : 0]),
    );
    const keepAll = this.graph.data.graph.keep_all_peak;
    const top = 1.1 * Math.max(highest, keepAll < 3 * highest ? keepAll : 0, 1);
    this.panes = this.shown.map((shown, i) => this.pane(shown, i, top, charts));
    this.update();
    this.resize();
  }

  private pane(plan: Plan, index: number, top: number, charts: HTMLElement): Pane {
    const holder = h("div", { class: "plot" });
    // In another order first runs are not those of keep-all.
    const outline = plan === this.keepAll || plan.data.order !== "fixed" ? null : plan.memoryOf(this.keepAll);
    const label = `Memory of ${plan.title} by step: peak ${bytes(plan.data.peak)} at step ${plan.data.peak_step}. `;
    const figure = h(
      "div",
      {
        class: "pane",
        tabindex: 0,
        role: "application",
        "aria-label": `${label}Arrow keys move from step to step, plus and minus zoom, Home and End go to the ends, P goes to the peak, 0 shows all.`,
        keydown: (event) => this.key(event as KeyboardEvent, index),
        focus: () => this.point(index, this.active === index ? this.step : plan.data.peak_step, false),
      },
      h("h3", {}, plan.title),
      outline && key("", "keeping everything, at the same op"),
      plan.measured && key("measured", "measured when it ran"),
      holder,
    );
    const from = h("p", { class: "range" });
    charts.append(h("div", { class: "pane-box" }, figure, from));
    const pane: Pane = { plan, figure, from, chart: undefined as unknown as Chart };
    pane.chart = new Chart(holder, {
      plan,
      grouping: this.grouping,
      axis: this.axis,
      lines: this.lines(plan),
      top,
      outline,
      height: LEAST_HEIGHT,
      hover: (step) => !this.pinned && this.point(index, step, false),
      click: (step) => this.pin(index, step),
      zoomed: () => this.update(),
    });
    return pane;
  }

  private lines(plan: Plan): Line[] {
    const keepAll = this.graph.data.graph.keep_all_peak;
    const lines: Line[] = [{ at: keepAll, label: `keep-all peak ${bytes(keepAll)}`, colour: "text-2" }];
    const { budget } = plan.data;
    if (budget !== null) lines.push({ at: budget, label: `budget ${bytes(budget)}`, colour: "budget" });
    return lines;
  }

  private controls(): void {
    const groups: [string, string][] = [["kind", "what it is for"]];
    for (const depth of depths(this.graph)) groups.push([`${depth}`, `module, ${count(depth, "name")} deep`]);
    const zoom = (factor: number) => () => this.zoomBy(factor);
    replace(
      byId("timeline-controls"),
      groups.length > 1 &&
        choice("Colours", groups, this.group, (value) => {
          this.group = value;
          this.redraw();
        }),
      choice(
        "Across",
        [
          ["step", "steps"],
          ["time", "time"],
        ],
        this.axis,
        (value) => {
          this.axis = value as Axis;
          this.redraw();
        },
      ),
      h(
        "span",
        { class: "buttons" },
        button("+", "Zoom in", zoom(0.5)),
        button("−", "Zoom out", zoom(2)),
        button("All", "Show all steps", () => this.zoomBy(Number.POSITIVE_INFINITY)),
        button("Peak", "Go to the peak", () => this.goToPeak()),
      ),
    );
  }

  private zoomBy(factor: number): void {
    const { chart, plan } = this.panes[this.active];
    const [from, to] = chart.range;
    const wanted = Math.min((to - from) * factor, plan.steps.length);
    const middle = this.step >= from && this.step < to ? this.step : (from + to) / 2;
    const begin = Math.max(0, Math.min(middle - wanted / 2, plan.steps.length - wanted));
    chart.zoom(begin, begin + wanted);
  }

  private goToPeak(): void {
    this.point(this.active, this.panes[this.active].plan.data.peak_step, true);
  }

  private key(event: KeyboardEvent, index: number): void {
    const { plan, chart } = this.panes[index];
    const [from, to] = chart.range;
    const far = event.shiftKey ? Math.max(1, Math.round((to - from) / 10)) : 1;
    const step = this.active === index ? this.step : plan.data.peak_step;
    const last = plan.steps.length - 1;
    const moves: Record<string, () => void> = {
      ArrowLeft: () => this.point(index, Math.max(0, step - far), true),
      ArrowRight: () => this.point(index, Math.min(last, step + far), true),
      Home: () => this.point(index, 0, true),
      End: () => this.point(index, last, true),
      p: () => this.point(index, plan.data.peak_step, true),
      "+": () => this.zoomBy(0.5),
      "=": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      "0": () => this.zoomBy(Number.POSITIVE_INFINITY),
      Enter: () => this.pin(index, step),
      Escape: () => this.release(),
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  }

  /** Looks at a step; `follow` brings it into view. */
  private point(index: number, step: number, follow: boolean): void {
    this.active = index;
    this.step = step;
    if (follow) {
      const { chart } = this.panes[index];
      const [from, to] = chart.range;
      if (step < from || step >= to) chart.zoom(step - (to - from) / 2, step + (to - from) / 2);
    }
    if (!this.pending) {
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        this.update();
      });
    }
  }

  private pin(index: number, step: number): void {
    this.pinned = !(this.pinned && this.active === index && this.step === step);
    this.point(index, step, false);
  }

  private release(): void {
    this.pinned = false;
    this.value = null;
    this.update();
  }

  /** Shows the life of a value. */
  look(value: number | null): void {
    this.value = value;
    this.pinned = true;
    this.update();
    if (value !== null) byId("value").scrollIntoView({ block: "nearest" });
  }

  private update(): void {
    const { plan } = this.panes[this.active];
    const step = Math.min(this.step, plan.steps.length - 1);
    this.panes.forEach((pane, i) => {
      pane.chart.mark(i === this.active ? step : -1);
      const [from, to] = pane.chart.range;
      const all = to - from === pane.plan.steps.length;
      replace(
        pane.from,
        all ? `all ${count(to, "step")}` : `steps ${from} to ${to - 1} of ${pane.plan.steps.length}`,
      );
      pane.figure.classList.toggle("active", i === this.active && this.panes.length > 1);
      pane.chart.markSpans(this.value === null ? [] : this.spans(pane.plan, this.value));
    });
    replace(
      byId("panel"),
      stepHeading(plan, step, this.panes.length > 1, this.pinned),
      groupTable(plan, this.grouping, step),
      aliveTable(plan, this.grouping, step, (value) => this.look(value)),
    );
    replace(
      byId("value"),
      this.value !== null &&
        valueCard(plan, this.value, {
          go: (at) => {
            this.pinned = true;
            this.point(this.active, at, true);
          },
          close: () => this.release(),
        }),
    );
    byId("total").title = exactBytes(plan.memory[step]);
  }

  private spans(plan: Plan, value: number): Span[] {
    if (this.graph.maker[value] < 0) return [{ first: 0, end: plan.steps.length, again: false }];
    return [...plan.livesOf(value)].map((life) => ({
      first: plan.lifeFirst[life],
      end: plan.lifeEnd[life],
      again: plan.again[plan.lifeFirst[life]] === 1,
    }));
  }

  /** As wide as there is room; beside the panel as tall as that, whose list has what is left of half a window. */
  private resize(): void {
    const panel = byId("panel");
    const isBeside = panel.offsetLeft > byId("charts").offsetLeft;
    if (isBeside) {
      const head = panel.clientHeight - (panel.querySelector(".scroll")?.clientHeight ?? 0);
      panel.style.setProperty("--list", `${Math.max(LEAST_LIST, innerHeight / 2 - head)}px`);
    } else panel.style.removeProperty("--list");
    for (const pane of this.panes) {
      const plot = pane.figure.querySelector<HTMLElement>(".plot");
      const width = plot?.clientWidth ?? 0;
      const others = (pane.figure.parentElement?.clientHeight ?? 0) - (plot?.clientHeight ?? 0);
      const height = Math.max(LEAST_HEIGHT, isBeside ? panel.clientHeight - others : 0.42 * innerHeight);
      if (width > 0) pane.chart.resize(width, height);
    }
    if (this.panes.length > 0) this.update();
  }
}
