// Overhead against memory: the curve, what no plan can be below, this plan's place, other planners.

import type { CurveData, CurvePoint, PlanData } from "./data";
import { byId, colour, h, replace } from "./dom";
import { bytes, count, exactBytes, percent } from "./format";
import type { Graph, Plan } from "./model";

const HEIGHT = 320;
const FONT = "12px system-ui, sans-serif";
const POWERS = Array.from({ length: 62 }, (_, i) => 2 ** i);

/** The least overhead of the points within a budget, or null below them all. */
export function overheadAt(
  points: { peak: number; duration: number }[],
  base: number,
  budget: number,
): number | null {
  const within = points.filter((point) => point.peak <= budget);
  return within.length === 0 ? null : Math.min(...within.map((point) => point.duration / base - 1));
}

/** A sign at a place; other planners' signs are explained in the legend alone. */
interface Mark {
  x: number;
  y: number;
  sign: string;
  label: string;
  colour: string;
}
/** How many times the overhead of the curve is shown for others. */
const MOST_ABOVE = 3;
const OTHERS = ["□", "△", "◇", "×", "▽", "+", "○", "☆"];

export class Curve {
  private plot: UPlot | null = null;
  private readonly base: number;
  private readonly curve: CurveData | undefined;
  private readonly points: CurvePoint[];
  /** The points, and all plans of the page that keep the same order. */
  private readonly found: { peak: number; duration: number }[];

  constructor(
    private readonly graph: Graph,
    private plans: Plan[],
  ) {
    this.base = graph.data.graph.base_duration || 1;
    this.curve = graph.data.curves[0];
    this.points = [...(this.curve?.points ?? [])].sort((a, b) => a.budget - b.budget);
    this.found = [...this.points, ...graph.data.plans.filter((plan) => plan.order === this.curve?.order)];
    if (this.points.length === 0) {
      byId("curve").hidden = true;
      for (const link of document.querySelectorAll<HTMLElement>('a[href="#curve"]')) link.hidden = true;
      return;
    }
    this.slider();
    this.table();
    this.legend();
    this.redraw();
    new ResizeObserver(() => {
      const width = byId("curve-plot").clientWidth;
      if (this.plot && width > 0) this.plot.setSize({ width, height: HEIGHT });
    }).observe(byId("curve-plot"));
  }

  show(plans: Plan[]): void {
    this.plans = plans;
    this.redraw();
  }

  redraw(): void {
    if (this.points.length === 0) return;
    this.plot?.destroy();
    replace(byId("curve-plot"));
    this.plot = new uPlot(this.settings(), this.columns(), byId("curve-plot"));
    this.sentence();
  }

  private overhead(point: { duration: number }): number {
    return point.duration / this.base - 1;
  }

  /** The overhead that no plan within a budget is below. */
  private least(budget: number): number {
    return this.graph.bound(budget, this.curve?.order ?? "").duration / this.base - 1;
  }

  private range(): [number, number] {
    const bound = this.curve?.peak_bound.bytes ?? 0;
    const last = this.points[this.points.length - 1].budget;
    const first = Math.min(bound, this.points[0].peak, ...this.plans.map((p) => p.data.peak));
    const margin = 0.04 * Math.max(1, last - first);
    return [Math.max(0, first - margin), last + margin];
  }

  private columns(): ArrayLike<number | null>[] {
    const [low, high] = this.range();
    const floor = this.curve?.peak_bound.bytes ?? low;
    const distinct = (all: number[]) => [...new Set(all)].sort((a, b) => a - b);
    const xs = distinct([
      low,
      floor,
      ...this.points.map((p) => p.budget),
      ...this.found.map((p) => p.peak),
      ...this.graph.data.plans.flatMap((plan) => plan.budget ?? []).filter((x) => low < x && x < high),
      high,
    ]);
    const most = this.top();
    const found = xs.map((x) => overheadAt(this.found, this.base, x));
    const bound = xs.map((x) => (x <= floor ? most : this.least(x)));
    return [xs, bound, found];
  }

  /** Room for the curve and the plans; what other planners need much more for stands at the upper edge. */
  private top(): number {
    const own = Math.max(
      0.01,
      ...this.points.map((p) => this.overhead(p)),
      ...this.plans.map((p) => p.data.overhead),
    );
    const others = this.others().map((mark) => mark.y);
    return 1.15 * Math.max(own, ...others.filter((overhead) => overhead < MOST_ABOVE * own));
  }

  private others(): Mark[] {
    return this.graph.data.curves.slice(1).flatMap((other, i) =>
      other.points.map((p) => ({
        x: p.peak,
        y: this.overhead(p),
        sign: OTHERS[i % OTHERS.length],
        label: "",
        colour: "text",
      })),
    );
  }

  private marks(): Mark[] {
    const marks = this.others();
    for (const point of this.points)
      if (point.knee)
        marks.push({ x: point.budget, y: this.overhead(point), sign: "◆", label: "knee", colour: "curve" });
    for (const { data } of this.plans)
      marks.push({ x: data.peak, y: data.overhead, sign: "●", label: data.title, colour: "budget" });
    return marks;
  }

  private legend(): void {
    const curves = this.graph.data.curves;
    const entries: [string, string, string][] = [
      ["━", "curve", `best that ${this.curve?.planner} found`],
      ["■", "bound-edge", "no plan can be here"],
      ["●", "budget", "shown above"],
      ["◆", "curve", "knee: more memory buys less from here on"],
      ...curves
        .slice(1)
        .map((other, i): [string, string, string] => [OTHERS[i % OTHERS.length], "text", other.planner]),
    ];
    replace(
      byId("curve-legend"),
      ...entries.map(([sign, name, text]) =>
        h("span", {}, h("i", { style: `color: var(--${name})`, "aria-hidden": "true" }, sign), text),
      ),
    );
  }

  private settings(): UPlotOptions {
    const text = colour("text-2");
    const grid = { stroke: colour("grid"), width: 1 };
    const axis = { stroke: text, font: FONT, grid, ticks: grid, labelFont: FONT, labelSize: 20 };
    const range = this.range();
    const top = this.top();
    const holder = byId("curve-plot");
    return {
      width: holder.clientWidth,
      height: HEIGHT,
      padding: [14, 16, 0, 0],
      legend: { show: false },
      scales: { x: { time: false, range: () => range }, y: { range: () => [0, top] } },
      axes: [
        {
          ...axis,
          size: 34,
          space: 90,
          incrs: POWERS,
          values: (_, xs) => xs.map(bytes),
          label: "memory that may be used",
        },
        { ...axis, size: 58, values: (_, ys) => ys.map(percent), label: "more time than keeping everything" },
      ],
      series: [
        {},
        {
          label: "no plan is below",
          fill: colour("bound"),
          stroke: colour("bound-edge"),
          width: 1,
          points: { show: false },
          paths: uPlot.paths.stepped({ align: -1 }),
        },
        {
          label: "best plan found",
          stroke: colour("curve"),
          width: 2,
          points: { show: false },
          paths: uPlot.paths.stepped({ align: 1 }),
        },
      ],
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } },
      hooks: { draw: [(u) => this.draw(u)], setCursor: [(u) => this.hovered(u)] },
    };
  }

  private draw(u: UPlot): void {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    const top = this.top();
    for (const mark of this.marks()) {
      const label = mark.y > top ? `${percent(mark.y)} ↑` : mark.label;
      const x = u.valToPos(mark.x, "x", true);
      const y = mark.y > top ? bbox.top + 8 * ratio : u.valToPos(mark.y, "y", true);
      ctx.fillStyle = colour(mark.colour);
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.fillText(mark.sign, x, y);
      ctx.textAlign = "left";
      const wide = ctx.measureText(label).width;
      const left = x + 10 * ratio + wide > bbox.left + bbox.width ? x - 10 * ratio - wide : x + 10 * ratio;
      const isLow = y + 24 * ratio > bbox.top + bbox.height;
      const down = (mark.y > top ? 0 : mark.sign === "◆" && !isLow ? 12 : -10) * ratio;
      ctx.lineWidth = 3 * ratio;
      ctx.strokeStyle = colour("surface");
      ctx.strokeText(label, left, y + down);
      ctx.fillText(label, left, y + down);
    }
    ctx.restore();
  }

  private hovered(u: UPlot): void {
    const left = u.cursor.left;
    if (left === undefined || left < 0) return;
    const budget = Math.round(u.posToVal(left, "x"));
    const slider = byId("curve-slider") as HTMLInputElement;
    slider.value = String(budget);
    this.read(budget);
  }

  /** What a budget buys, in words. */
  private read(budget: number): void {
    const found = overheadAt(this.found, this.base, budget);
    const text =
      found === null
        ? `${bytes(budget)}: no plan found${budget < (this.curve?.peak_bound.bytes ?? 0) ? ", and proved that there is none" : ""}`
        : `${bytes(budget)}: ${percent(found)} more time; proved: not below ${percent(Math.min(this.least(budget), found))}`;
    const output = byId("curve-read");
    replace(output, text);
    output.title = exactBytes(budget);
    const slider = byId("curve-slider") as HTMLInputElement;
    slider.setAttribute("aria-valuetext", text);
  }

  private slider(): void {
    const [low, high] = this.range();
    const start = this.plans[0].data.budget ?? this.plans[0].data.peak;
    const slider: HTMLInputElement = h("input", {
      id: "curve-slider",
      type: "range",
      min: Math.floor(low),
      max: Math.ceil(high),
      step: Math.max(1, Math.round((high - low) / 500)),
      value: start,
      "aria-label": "Memory that may be used",
      input: () => this.read(Number(slider.value)),
    });
    replace(
      byId("curve-controls"),
      h("label", { class: "choice wide" }, h("span", {}, "Memory"), slider),
      h("output", { id: "curve-read", for: "curve-slider" }),
    );
    this.read(start);
  }

  /** "1 GiB more would save at least 3.1 %", where that budget was planned for. */
  private aroundPlan(plan: PlanData): string {
    const { budget } = plan;
    if (budget === null || plan.order !== this.curve?.order || plan.host) return "";
    const { apart, peak_bound } = this.curve;
    const at = (wanted: number) => this.points.find((point) => point.budget === wanted);
    const most = this.graph.data.graph.keep_all_peak;
    const more = budget < most ? at(Math.min(most, budget + apart)) : undefined;
    const less = at(budget - apart);
    const parts: string[] = [];
    if (more) {
      const saved = plan.overhead - this.overhead(more);
      const what = bytes(more.budget - budget);
      if (saved > 0) parts.push(`${what} more would save at least ${percent(saved)} of keep-all's time`);
    }
    if (less) {
      const cost = percent(Math.max(0, this.overhead(less) - plan.overhead));
      parts.push(`${bytes(apart)} less would cost at most ${cost} of it`);
    } else if (budget - apart < peak_bound.bytes)
      parts.push(`${bytes(apart)} less is proved to be too little`);
    return parts.join("; ");
  }

  private sentence(): void {
    if (!this.curve) return;
    const { planner, order, stopped_by, peak_bound } = this.curve;
    const plan = this.plans[0].data;
    const text = this.aroundPlan(plan);
    replace(
      byId("curve-sentence"),
      text && `From ${plan.title} at ${bytes(plan.budget ?? 0)}: `,
      text && h("b", {}, text),
      text && ". ",
      `The curve is the best that ${planner} found in ${order} order${
        stopped_by ? ` within its limits (stopped by ${stopped_by})` : ""
      }; no plan can lie in the shaded area, and none fits below ${bytes(peak_bound.bytes)}.`,
    );
  }

  private table(): void {
    const rows = [...this.points]
      .reverse()
      .map((point) =>
        h(
          "tr",
          { "data-bytes": point.budget, "data-duration": point.duration },
          h("td", { title: exactBytes(point.budget) }, bytes(point.budget)),
          h("td", {}, percent(point.budget / this.graph.data.graph.keep_all_peak)),
          h("td", { title: exactBytes(point.peak) }, bytes(point.peak)),
          h("td", {}, percent(this.overhead(point))),
          h("td", {}, percent(this.least(point.budget))),
          h("td", {}, `${point.status}${point.knee ? ", knee" : ""}`),
        ),
      );
    const heads = ["Budget", "Of keep-all", "Peak", "More time", "Not below", "Status"];
    replace(
      byId("curve-table"),
      h("summary", {}, `The curve as a table (${count(this.points.length, "budget")})`),
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          {},
          h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
          h("tbody", {}, ...rows),
        ),
      ),
    );
  }
}
