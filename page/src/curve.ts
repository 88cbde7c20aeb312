// Overhead against memory: the curve, what no plan can be below, this plan's place, other planners.

import type { CurveData, CurvePoint } from "./data";
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

/** An amount to speak of: 1 GiB, or a smaller power of two where that is much of what there is. */
export function spokenAmount(range: number): number {
  let amount = 2 ** 30;
  while (amount > 1 && amount > range / 4) amount /= 2;
  return amount;
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
      high,
    ]);
    const most = this.top();
    const found = xs.map((x) => overheadAt(this.found, this.base, x));
    // The bound at a budget holds for all smaller ones.
    const bound = xs.map((x) => {
      if (x <= floor) return most;
      const next = this.points.find((point) => point.budget >= x);
      return next ? Math.max(0, next.bound / this.base - 1) : 0;
    });
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
    const next = this.points.find((point) => point.budget >= budget);
    const bound = next ? Math.max(0, next.bound / this.base - 1) : 0;
    const text =
      found === null
        ? `${bytes(budget)}: no plan found${budget < (this.curve?.peak_bound.bytes ?? 0) ? ", and proved that there is none" : ""}`
        : `${bytes(budget)}: ${percent(found)} more time; proved: not below ${percent(Math.min(bound, found))}`;
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

  /** "1 GiB more would save 3.1 %." */
  private sentence(): void {
    const plan = this.plans[0].data;
    const at = plan.budget ?? plan.peak;
    const range = this.points[this.points.length - 1].budget - this.points[0].peak;
    const amount = spokenAmount(range);
    const here = Math.min(plan.overhead, overheadAt(this.found, this.base, at) ?? plan.overhead);
    const more = overheadAt(this.found, this.base, at + amount);
    const less = overheadAt(this.found, this.base, at - amount);
    const parts: string[] = [];
    if (at < this.graph.data.graph.keep_all_peak && more !== null)
      parts.push(
        `${bytes(amount)} more would save ${percent(Math.max(0, here - more))} of the time that keeping everything takes`,
      );
    if (less !== null)
      parts.push(`${bytes(amount)} less would cost ${percent(Math.max(0, less - here))} more`);
    else if (at - amount < (this.curve?.peak_bound.bytes ?? 0))
      parts.push(`${bytes(amount)} less is proved to be too little`);
    else parts.push(`with ${bytes(amount)} less no plan was found`);
    const text = parts.join("; ");
    replace(
      byId("curve-sentence"),
      `From ${plan.title} at ${bytes(at)}: `,
      h("b", {}, text),
      `. The curve is the best that ${this.curve?.planner} found in ${this.curve?.order} order${
        this.curve?.stopped_by ? ` within its limits (stopped by ${this.curve.stopped_by})` : ""
      }; no plan can lie in the shaded area, and none fits below ${bytes(this.curve?.peak_bound.bytes ?? 0)}.`,
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
          h("td", {}, percent(Math.max(0, point.bound / this.base - 1))),
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
