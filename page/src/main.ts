// Reads the numbers, lays out the page, and keeps its parts on the same plans.
import { Curve } from "./curve";
import type { ReportData } from "./data";
import { button, byId, choice, replace } from "./dom";
import { Layers } from "./layers";
import { entry } from "./maps";
import { Graph, Plan } from "./model";
import { Prices } from "./prices";
import { Timeline } from "./timeline";
import { showComparison, showSummary, showVerdicts } from "./verdict";

type Theme = "auto" | "light" | "dark";

function start(): void {
  const data = JSON.parse(byId("data").textContent ?? "") as ReportData;
  byId("data").remove();
  const graph = new Graph(data);
  const known = new Map<number, Plan>();
  const planAt = (index: number) => entry(known, index, () => new Plan(graph, data.plans[index]));
  const keepAll = planAt(data.plans.length - 1);
  let first = 0;
  let second: number | null = data.plans.length > 2 ? 1 : null;
  const shown = () => (second === null ? [planAt(first)] : [planAt(first), planAt(second)]);

  document.title = `${graph.name} – Remat`;
  replace(byId("title"), graph.name);
  const timeline = new Timeline(graph, shown(), keepAll);
  const prices = new Prices(graph, planAt(first), keepAll);
  const curve = new Curve(graph, shown());
  const layers = new Layers(graph, planAt(first));
  const summarize = () => {
    showSummary(planAt(first));
    showComparison(shown());
    showVerdicts(shown());
  };
  summarize();

  const titles = data.plans.map((plan, i): [string, string] => [String(i), plan.title]);
  const changed = () => {
    if (second === first) second = null;
    pick();
    timeline.show(shown());
    prices.show(planAt(first));
    curve.show(shown());
    layers.show(planAt(first));
    summarize();
  };
  function pick(): void {
    const others = titles.filter(([index]) => index !== String(first));
    const picked = document.activeElement?.closest("label")?.textContent?.startsWith("Beside") ? 1 : 0;
    const hadFocus = byId("plans").contains(document.activeElement);
    replace(
      byId("plans"),
      choice("Plan", titles, String(first), (value) => {
        first = Number(value);
        changed();
      }),
      others.length > 0 &&
        choice("Beside it", [["", "nothing"], ...others], second === null ? "" : String(second), (value) => {
          second = value === "" ? null : Number(value);
          changed();
        }),
    );
    if (hadFocus) byId("plans").querySelectorAll("select")[picked]?.focus();
  }
  pick();
  themes(() => {
    timeline.redraw();
    curve.redraw();
  });
}

/** Follows the system until somebody chooses; paper is always light. */
function themes(redraw: () => void): void {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let theme: Theme = "auto";
  const apply = (shown: Theme) => {
    root.dataset.theme = shown === "auto" ? (dark.matches ? "dark" : "light") : shown;
    redraw();
  };
  const toggle = button("◐", "Dark or light", () => {
    theme = root.dataset.theme === "dark" ? "light" : "dark";
    apply(theme);
  });
  byId("theme").append(toggle);
  dark.addEventListener("change", () => theme === "auto" && apply(theme));
  addEventListener("beforeprint", () => apply("light"));
  addEventListener("afterprint", () => apply(theme));
}

document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches
  ? "dark"
  : "light";
try {
  start();
} catch (error) {
  replace(
    byId("sentence"),
    `This page could not be shown: ${error instanceof Error ? error.message : String(error)}`,
  );
  throw error;
}
