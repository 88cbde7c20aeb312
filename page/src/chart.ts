// A stacked chart of a plan's memory that can be zoomed: buckets of steps, each shown by its largest step.

import { colour } from "./dom";
import { bytes, duration } from "./format";
import type { Grouping } from "./groups";
import { BACKWARD, LOSS, type Plan, type Stack } from "./model";

export type Axis = "step" | "time";

export interface Line {
  at: number;
  label: string;
  colour: string;
}

/** Steps at which an instance is alive. */
export interface Span {
  first: number;
  end: number;
  again: boolean;
}

export interface ChartOptions {
  plan: Plan;
  grouping: Grouping;
  axis: Axis;
  lines: Line[];
  top: number;
  /** What keeping everything needs, by step: a line behind the areas. */
  outline: Float64Array | null;
  height: number;
  hover: (step: number) => void;
  click: (step: number) => void;
  zoomed: (from: number, to: number) => void;
}

const POWERS = Array.from({ length: 62 }, (_, i) => 2 ** i);
const FONT = "12px system-ui, sans-serif";

/** Without a limit on how many there are. */
export function most(amounts: Float64Array): number {
  return amounts.reduce((a, b) => Math.max(a, b), 0);
}

export class Chart {
  private plot: UPlot;
  private readonly stack: Stack;
  private from = 0;
  private to: number;
  /** The step that each bucket shows. */
  private shown: number[] = [];
  private marked = -1;
  private spansMarked: Span[] = [];
  private readonly marker = document.createElement("div");
  private readonly spans = document.createElement("div");

  constructor(
    private readonly into: HTMLElement,
    private readonly options: ChartOptions,
  ) {
    this.to = options.plan.steps.length;
    this.stack = options.grouping.stackOf(options.plan);
    this.marker.className = "marker";
    this.spans.className = "spans";
    this.plot = new uPlot(this.settings(), this.buckets(), into);
    this.plot.over.append(this.spans, this.marker);
    this.plot.over.addEventListener("dblclick", () => this.zoom(0, options.plan.steps.length));
    this.plot.over.addEventListener("click", () => {
      const left = this.plot.cursor.left;
      if (left !== undefined && left >= 0) options.click(this.stepAtPixel(left));
    });
  }

  get range(): [number, number] {
    return [this.from, this.to];
  }

  /** Shows the steps [from, to), 8 at least. */
  zoom(from: number, to: number): void {
    const n = this.options.plan.steps.length;
    const least = Math.min(8, n);
    let begin = Math.max(0, Math.min(Math.round(from), n - least));
    const end = Math.min(n, Math.max(Math.round(to), begin + least));
    begin = Math.min(begin, Math.max(0, end - least));
    if (begin === this.from && end === this.to) return;
    this.from = begin;
    this.to = end;
    this.plot.setData(this.buckets());
    this.options.zoomed(begin, end);
  }

  /** A line at a step; -1: none. */
  mark(step: number): void {
    this.marked = step;
    this.place();
  }

  /** Bars over the steps at which instances are alive. */
  markSpans(spans: Span[]): void {
    this.spansMarked = spans;
    this.place();
  }

  /** Puts the line and the bars where the scales are now. */
  private place(): void {
    const step = this.marked;
    const left = this.pixel(step);
    this.marker.style.transform = `translateX(${left}px)`;
    this.marker.style.width = `${Math.max(1.5, this.pixel(step + 1) - left)}px`;
    this.marker.hidden = step < this.from || step >= this.to;
    this.spans.replaceChildren(
      ...this.spansMarked.map(({ first, end, again }) => {
        const bar = document.createElement("i");
        const begin = Math.max(0, this.pixel(first));
        bar.style.left = `${begin}px`;
        bar.style.width = `${Math.max(2, this.pixel(end) - begin)}px`;
        bar.className = again ? "again" : "";
        return bar;
      }),
    );
  }

  resize(width: number, height: number): void {
    this.plot.setSize({ width, height });
  }

  destroy(): void {
    this.plot.destroy();
    this.into.replaceChildren();
  }

  private position(step: number): number {
    return this.options.axis === "step" ? step : this.options.plan.start[step];
  }
  private pixel(step: number): number {
    return this.plot.valToPos(this.position(step), "x");
  }

  private stepAtPixel(left: number): number {
    const { plan, axis } = this.options;
    const x = this.plot.posToVal(left, "x");
    const step = axis === "step" ? Math.floor(x) : plan.stepAt(x);
    const inside = Math.max(this.from, Math.min(this.to - 1, step));
    // Where a pixel stands for many steps: the one that is drawn.
    const bucket = Math.floor(((inside - this.from) * this.shown.length) / (this.to - this.from));
    return this.to - this.from <= this.shown.length ? inside : this.shown[Math.max(0, bucket)];
  }

  /** Columns of the plot: the largest sum first, as what is drawn later covers what was drawn before. */
  private buckets(): ArrayLike<number>[] {
    const { plan, axis } = this.options;
    const length = this.to - this.from;
    const count = Math.min(length, Math.max(300, Math.min(1600, this.into.clientWidth)));
    const groups = this.stack.length;
    const { measured } = plan;
    const { outline } = this.options;
    const behind = outline ? 1 : 0;
    const series = behind + groups + (measured ? 1 : 0);
    const columns = Array.from({ length: series + 1 }, () => new Float64Array(count + 1));
    this.shown = [];
    for (let bucket = 0; bucket < count; bucket++) {
      const begin = this.from + Math.floor((bucket * length) / count);
      const end = this.from + Math.floor(((bucket + 1) * length) / count);
      let step = begin;
      for (let i = begin; i < end; i++) if (plan.memory[i] > plan.memory[step]) step = i;
      this.shown.push(step);
      columns[0][bucket] = axis === "step" ? begin : plan.start[begin];
      let sum = 0;
      for (let group = 0; group < groups; group++) {
        sum += this.stack[group][step];
        columns[behind + groups - group][bucket] = sum;
      }
      if (outline) columns[1][bucket] = most(outline.subarray(begin, end));
      if (measured) columns[series][bucket] = most(measured.subarray(begin, end));
    }
    columns[0][count] = this.position(this.to);
    for (let one = 1; one <= series; one++) columns[one][count] = columns[one][count - 1];
    return columns;
  }

  private settings(): UPlotOptions {
    const { grouping, options } = { grouping: this.options.grouping, options: this.options };
    const text = colour("text-2");
    const grid = { stroke: colour("grid"), width: 1 };
    const stepped = uPlot.paths.stepped({ align: 1 });
    const line = (label: string, name: string, width: number) => ({
      label,
      stroke: colour(name),
      width,
      points: { show: false },
      paths: stepped,
    });
    const unit = options.plan.graph.data.graph.time_unit;
    const axis = { stroke: text, font: FONT, grid, ticks: grid };
    return {
      width: this.into.clientWidth,
      height: options.height,
      padding: [20, 12, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: (_, low, high) => [low, high] },
        y: { range: () => [0, options.top] },
      },
      axes: [
        {
          ...axis,
          size: 34,
          values: (_, splits) =>
            splits.map((x) =>
              options.axis === "step" ? (Number.isInteger(x) ? String(x) : "") : duration(x, unit),
            ),
        },
        { ...axis, size: 72, space: 40, incrs: POWERS, values: (_, splits) => splits.map(bytes) },
      ],
      series: [
        {},
        ...(options.outline ? [line("keeping everything", "keep-all", 1.2)] : []),
        ...grouping.colours
          .slice()
          .reverse()
          .map((name, i) => ({
            label: grouping.names[grouping.names.length - 1 - i],
            fill: colour(name),
            stroke: colour("surface"),
            width: 0.4,
            points: { show: false },
            paths: stepped,
          })),
        ...(options.plan.measured ? [line("measured", "measured", 2)] : []),
      ],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      hooks: {
        drawClear: [(u) => this.drawPhases(u)],
        draw: [(u) => this.draw(u)],
        setCursor: [(u) => this.hovered(u)],
        setSelect: [(u) => this.selected(u)],
      },
    };
  }

  private hovered(u: UPlot): void {
    const left = u.cursor.left;
    if (left !== undefined && left >= 0) this.options.hover(this.stepAtPixel(left));
  }

  private selected(u: UPlot): void {
    if (u.select.width < 4) return;
    const { axis, plan } = this.options;
    const [a, b] = [u.select.left, u.select.left + u.select.width].map((left) => u.posToVal(left, "x"));
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (axis === "step") this.zoom(Math.floor(a), Math.ceil(b));
    else this.zoom(plan.stepAt(a), plan.stepAt(b) + 1);
  }

  /** Forward and backward half behind everything, named above it, and where the loss begins. */
  private drawPhases(u: UPlot): void {
    const { plan } = this.options;
    const backward = plan.firstOf(BACKWARD);
    if (backward === 0 || backward === plan.steps.length) return;
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    const inside = (step: number) =>
      Math.min(bbox.left + bbox.width, Math.max(bbox.left, u.valToPos(this.position(step), "x", true)));
    const above = bbox.top - 5 * ratio;
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    for (const [name, first, end] of [
      ["forward", 0, backward],
      ["backward", backward, plan.steps.length],
    ] as const) {
      const [left, right] = [inside(first), inside(end)];
      ctx.fillStyle = colour(name);
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.fillStyle = colour("text-2");
      if (ctx.measureText(name).width + 36 * ratio < right - left)
        ctx.fillText(name, (left + right) / 2, above);
    }
    const loss = plan.firstOf(LOSS);
    if (loss < backward && loss >= this.from && loss < this.to) {
      const x = inside(loss);
      ctx.strokeStyle = colour("text-2");
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText("loss", x, above);
    }
    ctx.restore();
  }

  /** Budget, keep-all and the peak. */
  private draw(u: UPlot): void {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    let labelled = -Infinity;
    for (const line of [...this.options.lines].sort((a, b) => a.at - b.at)) {
      const y = u.valToPos(line.at, "y", true);
      ctx.strokeStyle = ctx.fillStyle = colour(line.colour);
      ctx.lineWidth = 1.5 * ratio;
      ctx.setLineDash([6 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      const below = Math.abs(y - labelled) < 16 * ratio;
      const wide = ctx.measureText(line.label).width;
      this.label(ctx, line.label, bbox.left + bbox.width - wide - 4 * ratio, y + (below ? 14 : -4) * ratio);
      labelled = y;
    }
    ctx.setLineDash([]);
    this.drawPeak(u);
    ctx.restore();
    // The plot settles its scales after it was asked to show something else.
    this.place();
  }

  /** Text that can be read on any of the areas. */
  private label(ctx: CanvasRenderingContext2D, text: string, x: number, y: number): void {
    const fill = ctx.fillStyle;
    ctx.lineWidth = 3 * devicePixelRatio;
    ctx.lineJoin = "round";
    ctx.setLineDash([]);
    ctx.strokeStyle = colour("surface");
    ctx.strokeText(text, x, y);
    ctx.fillStyle = fill;
    ctx.fillText(text, x, y);
  }

  private drawPeak(u: UPlot): void {
    const { peak, peak_step } = this.options.plan.data;
    if (peak_step < this.from || peak_step >= this.to) return;
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    const x =
      (u.valToPos(this.position(peak_step), "x", true) +
        u.valToPos(this.position(peak_step + 1), "x", true)) /
      2;
    const y = u.valToPos(peak, "y", true) - 3 * ratio;
    ctx.fillStyle = colour("text");
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.lineTo(x - 5 * ratio, y - 8 * ratio);
    ctx.lineTo(x + 5 * ratio, y - 8 * ratio);
    ctx.fill();
    const text = `peak ${bytes(peak)}`;
    const wide = ctx.measureText(text).width;
    const left = x + 9 * ratio + wide > bbox.left + bbox.width ? x - 9 * ratio - wide : x + 9 * ratio;
    // Above the label of a line that is as high as the peak and would be written over.
    const lines = this.options.lines.map((line) => u.valToPos(line.at, "y", true));
    const near = lines.some((line) => Math.abs(line - y) < 16 * ratio);
    const crowded = left + wide > bbox.left + bbox.width - 140 * ratio;
    this.label(ctx, text, left, near && crowded ? y - 18 * ratio : y);
  }
}
