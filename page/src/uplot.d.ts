// What this page uses of uPlot 1.6 (vendor/, MIT), which comes as a global script.
interface UPlotSeries {
  label?: string;
  stroke?: string;
  fill?: string;
  width?: number;
  dash?: number[];
  spanGaps?: boolean;
  points?: { show: boolean; size?: number; fill?: string; stroke?: string };
  paths?: unknown;
}
interface UPlotAxis {
  stroke?: string;
  font?: string;
  size?: number;
  space?: number;
  incrs?: number[];
  grid?: { stroke?: string; width?: number };
  ticks?: { stroke?: string; width?: number };
  values?: (u: UPlot, splits: number[]) => string[];
  label?: string;
  labelFont?: string;
  labelSize?: number;
}
interface UPlotScale {
  time?: boolean;
  range?: (u: UPlot, low: number, high: number) => [number, number];
}
interface UPlotOptions {
  width: number;
  height: number;
  padding?: (number | null)[];
  legend?: { show: boolean };
  scales: { x: UPlotScale; y: UPlotScale };
  axes: UPlotAxis[];
  series: UPlotSeries[];
  cursor?: {
    y?: boolean;
    points?: { show: boolean };
    drag?: { x: boolean; y: boolean; setScale: boolean };
  };
  hooks?: {
    drawClear?: ((u: UPlot) => void)[];
    draw?: ((u: UPlot) => void)[];
    setCursor?: ((u: UPlot) => void)[];
    setSelect?: ((u: UPlot) => void)[];
  };
}
declare class UPlot {
  constructor(options: UPlotOptions, data: ArrayLike<number | null>[], into: HTMLElement);
  readonly over: HTMLDivElement;
  readonly ctx: CanvasRenderingContext2D;
  readonly bbox: { left: number; top: number; width: number; height: number };
  readonly cursor: { left?: number; top?: number; idx?: number | null };
  readonly select: { left: number; top: number; width: number; height: number };
  setData(data: ArrayLike<number | null>[], rescale?: boolean): void;
  setSize(size: { width: number; height: number }): void;
  setSelect(select: { left: number; top: number; width: number; height: number }, fire?: boolean): void;
  posToVal(position: number, scale: string): number;
  valToPos(value: number, scale: string, canvas?: boolean): number;
  destroy(): void;
}
declare const uPlot: typeof UPlot & {
  paths: { stepped: (options: { align: 1 | -1 }) => unknown; points: () => unknown };
};
