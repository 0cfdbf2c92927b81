// A card: one view with its title, its caption, its pictures, a legend that reads values off, and its downloads.

import { Picture, shape } from "./chart.js";
import { download } from "./download.js";
import { element } from "./fields.js";

const FORMS = ["png", "svg", "csv", "json"];

/** The colour of a policy, and the ends of a list of numbers. */
export const policyClass = (policy) => (policy === "reject" ? "s-reject" : "s-refined");
export const extent = (values) => [Math.min(...values), Math.max(...values)];

/** A sample of how something is drawn, for the legend. */
export function swatch(kind, cls) {
  const drawn = {
    line: () => shape("line", { x1: 1, x2: 25, y1: 7, y2: 7, class: `line ${cls}` }),
    area: () => shape("rect", { x: 1, y: 2, width: 24, height: 10, class: `area ${cls}` }),
    span: () => shape("rect", { x: 1, y: 2, width: 24, height: 10, class: `span ${cls}` }),
    bar: () => shape("rect", { x: 1, y: 2, width: 24, height: 10, class: `bar ${cls}` }),
    point: () => shape("circle", { cx: 13, cy: 7, r: 5, class: `point ${cls}` }),
    star: () => shape("path", { d: "M13 0L15 5L20.6 5.2L16.2 8.6L17.8 14L13 10.8L8.2 14L9.8 8.6L5.4 5.2L11 5Z", class: `point ${cls}` }),
  };
  return shape("svg", { width: 26, height: 14, viewBox: "0 0 26 14", class: "swatch", "aria-hidden": "true" }, drawn[kind]());
}

export class Card {
  constructor(container, { id, title, caption, wide = false, pictures = 1 }) {
    Object.assign(this, { id, title });
    const saves = element("div", { class: "saves", role: "group", "aria-label": `Download: ${title}` });
    this.buttons = FORMS.map((form) => {
      const button = element("button", { type: "button", class: "save", "data-form": form, disabled: "" }, form.toUpperCase());
      button.addEventListener("click", () => download(this, form));
      return button;
    });
    saves.append(...this.buttons);
    this.caption = element("p", { class: "caption" }, caption);
    this.figure = element("figure", {});
    this.key = element("ul", { class: "legend", "aria-label": `Values: ${title}` });
    this.reading = element("p", { class: "reading" });
    this.root = element("section", { class: `card${wide ? " wide" : ""}`, id: `view-${id}`, "aria-labelledby": `title-${id}` },
      element("header", {}, element("h2", { id: `title-${id}` }, title), saves), this.caption, this.figure, this.key, this.reading);
    container.append(this.root);
    this.images = Array.from({ length: pictures }, () => {
      const holder = element("div", { class: "holder" });
      this.figure.append(holder);
      const picture = new Picture(holder, (x) => this.read(x));
      picture.svg.setAttribute("aria-label", `${title}: nothing is drawn yet`);
      return picture;
    });
    this.entries = [];
    this.answered = null;
  }

  /** A new question: what is shown is old until the first new part comes. */
  begin() {
    this.root.dataset.state = "waiting";
    this.problem = "";
  }

  fresh(whole) {
    this.root.dataset.state = whole ? "whole" : "filling";
    for (const button of this.buttons) button.disabled = false;
  }

  /** There is nothing to draw, for a reason. */
  empty(reason) {
    for (const image of this.images) image.clear(`${this.title}: ${reason}`);
    this.explain([]);
    this.reading.textContent = reason;
  }

  refusal(error) {
    this.root.dataset.state = "refused";
    this.reading.textContent = error.message;
  }

  /** Entries of the legend: how it is drawn, what it is, and a function from the cursor (or null) to its value. */
  explain(entries) {
    this.entries = entries;
    this.key.replaceChildren(
      ...entries.map((entry) => {
        entry.shown = element("output", {});
        entry.swatch = swatch(entry.kind, entry.cls);
        return element("li", {}, entry.swatch, element("span", {}, entry.label), entry.shown);
      }),
    );
    this.read(this.at ?? null);
  }

  read(x) {
    this.at = x;
    for (const entry of this.entries) entry.shown.textContent = entry.value?.(x) ?? "";
  }

  // What the downloads ask for.
  pictures() {
    return this.images.map((image) => image.svg);
  }

  legend() {
    return this.entries.map((entry) => ({ swatch: entry.swatch, text: [entry.label, entry.shown.textContent].filter(Boolean).join(": ") }));
  }

  data() {
    return this.answered ?? { schema: `filet.${this.id}.v1`, result: { columns: this.columns() } };
  }

  assumptions() {
    return this.about ?? "";
  }
}

/** A view that fills in: parts are gathered in `coming`, which takes the place of the old picture once there is enough of it. */
export class FillingCard extends Card {
  grown(enough) {
    if (!enough && this.current) return;
    this.current = this.coming;
    this.show();
    this.fresh(false);
  }

  answer(answer) {
    this.answered = answer;
    this.current = this.coming; // also where too few parts came to be shown before
    this.show();
    this.fresh(true);
  }
}

/** Rows that come in any order, by their key. */
export class Rows {
  constructor(key) {
    this.key = key;
    this.map = new Map();
  }

  merge(row) {
    this.map.set(row[this.key], { ...this.map.get(row[this.key]), ...row });
  }

  sorted() {
    return [...this.map.values()].sort((a, b) => a[this.key] - b[this.key]);
  }

  /** [key, value] of every row that has the value. */
  points(name, convert = Number) {
    return this.sorted().filter((row) => row[name] !== undefined && row[name] !== null).map((row) => [row[this.key], convert(row[name])]);
  }

  columns() {
    const rows = this.sorted();
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    return Object.fromEntries(names.map((name) => [name, rows.map((row) => row[name] ?? null)]));
  }
}
