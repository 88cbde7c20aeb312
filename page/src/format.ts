// Numbers for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SECONDS: Record<string, number> = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1 };

/** Three digits of which none is a trailing zero behind the point: 3.56, 12.3, 512. */
function threeDigits(amount: number): string {
  if (!Number.isFinite(amount)) return "–";
  if (Math.abs(amount) >= 999.5) return Math.round(amount).toString();
  return Number.parseFloat(amount.toPrecision(3)).toString();
}

export function bytes(amount: number): string {
  let unit = 0;
  let size = Math.abs(amount);
  while (size >= 1023.5 && unit + 1 < UNITS.length) {
    size /= 1024;
    unit++;
  }
  return `${amount < 0 ? "−" : ""}${threeDigits(size)} ${UNITS[unit]}`;
}

/** With all digits, for titles: "3.56 GiB (3825205248 bytes)". */
export function exactBytes(amount: number): string {
  return Math.abs(amount) < 1024 ? `${amount} bytes` : `${bytes(amount)} (${amount} bytes)`;
}

export function percent(ratio: number): string {
  if (!Number.isFinite(ratio)) return "–";
  const amount = 100 * ratio;
  if (amount === 0) return "0 %";
  if (Math.abs(amount) < 0.01) return amount > 0 ? "< 0.01 %" : "> −0.01 %";
  return `${threeDigits(amount).replace("-", "−")} %`;
}

/** A duration in the graph's unit, in one that fits where it is a unit of time. */
export function duration(amount: number, unit: string): string {
  const factor = SECONDS[unit];
  if (factor === undefined) return `${threeDigits(amount)}${unit ? ` ${unit}` : ""}`;
  const seconds = amount * factor;
  if (seconds === 0) return "0 s";
  for (const name of ["s", "ms", "us"]) {
    const size = SECONDS[name];
    if (Math.abs(seconds) >= 0.9995 * size)
      return `${threeDigits(seconds / size)} ${name === "us" ? "µs" : name}`;
  }
  return `${threeDigits(seconds / 1e-9)} ns`;
}

export function count(amount: number, one: string, several = `${one}s`): string {
  return `${amount} ${amount === 1 ? one : several}`;
}
