// Elements in one line each.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | ((event: Event) => void)>;

export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, String(value));
  }
  for (const child of children)
    if (child !== null && child !== undefined && child !== false)
      element.append(...(typeof child === "string" && tag !== "option" ? breakable(child) : [child]));
  return element;
}

/** A text whose long names may go on in the next line behind a mark, and not inside a word. */
function breakable(text: string): Node[] {
  const parts = text.split(/(?<=[A-Za-z0-9][._/])(?=[A-Za-z][^\s]{5})/);
  return parts.flatMap((part, i) => [...(i > 0 ? [document.createElement("wbr")] : []), new Text(part)]);
}

export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return found;
}

export function replace(into: HTMLElement, ...children: Child[]): void {
  into.replaceChildren(...children.filter((child): child is Node | string => Boolean(child)));
}

/** A labelled <select>; `change` gets the value. */
export function choice(
  label: string,
  options: [string, string][],
  value: string,
  change: (value: string) => void,
): HTMLLabelElement {
  const select: HTMLSelectElement = h("select", { change: () => change(select.value) });
  for (const [key, text] of options)
    select.append(h("option", { value: key, selected: key === value }, text));
  return h("label", { class: "choice" }, h("span", {}, label), select);
}

export function button(text: string, title: string, click: () => void): HTMLButtonElement {
  return h("button", { type: "button", title, "aria-label": title, click }, text);
}

/** A colour, as the theme has it now. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
