// A card: one view with its title, its caption, its pictures, a legend that reads values off, and its downloads.

import { Picture, shape } from "./chart.js";
import { download } from "./download.js";
import { element } from "./elements.js";
import { number } from "./format.js";
import { help, link, meaning } from "./help.js";

const FORMS = ["png", "svg", "csv", "json"];

/** The colour of a policy, and the ends of a list of numbers. */
export const policyClass = (policy) => (policy === "reject" ? "s-reject" : "s-refined");
export const extent = (values) => [Math.min(...values), Math.max(...values)];

/** A sample of how something is drawn, for the legend. */
export function swatch(kind, cls) {
  const drawn = {
    none: () => "",
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
  constructor(container, { id, title, caption, page, topic, wide = false, pictures = 1 }) {
    Object.assign(this, { id, title });
    const saves = element("div", { class: "saves", role: "group", "aria-label": `Download: ${title}` });
    this.buttons = FORMS.map((form) => {
      const button = element("button", { type: "button", class: "save", "data-form": form, disabled: "" }, form.toUpperCase());
      button.addEventListener("click", () => download(this, form));
      return button;
    });
    saves.append(...this.buttons);
    this.caption = element("p", { class: "caption" }, `${caption} `, link(page, "Read more"));
    const heading = element("div", { class: "heading" }, element("h2", { id: `title-${id}` }, title), ...(topic ? [help(topic)] : []));
    this.figure = element("figure", {});
    this.key = element("ul", { class: "legend", "aria-label": `Values: ${title}` });
    this.reading = element("p", { class: "reading" });
    this.root = element("section", { class: `card${wide ? " wide" : ""}`, id: `view-${id}`, "aria-labelledby": `title-${id}` },
      element("header", {}, heading, saves), this.caption, this.figure, this.key, this.reading);
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
    this.saveable(true, false);
  }

  fresh(whole) {
    this.root.dataset.state = whole ? "whole" : "filling";
    this.drawn = true;
    this.saveable(true, whole);
  }

  /** Pictures may be saved once something is drawn, numbers once all of them are there. */
  saveable(pictures, numbers) {
    for (const button of this.buttons) {
      const form = button.dataset.form;
      button.disabled = !(this.drawn && (form === "png" || form === "svg" ? pictures : numbers));
    }
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
        entry.swatch = swatch(entry.kind ?? "none", entry.cls);
        return element("li", { title: meaning(entry.word) }, entry.swatch, element("span", {}, entry.label), entry.shown);
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
    return this.answered;
  }

  /** The columns of the answer, with those that tell the run: a file that stands for itself. */
  columns() {
    return tidy(this.answered.inputs, this.answered.result.columns);
  }

  assumptions() {
    return this.about ?? "";
  }
}

/** A view that fills in: parts are gathered in `coming`, which takes the place of the old picture once there is enough of it. */
export class FillingCard extends Card {
  begin(given, note) {
    super.begin();
    this.coming = { rows: new Rows(this.column), whole: false, note, given };
  }

  grown(enough) {
    if (!enough) return;
    this.current = this.coming;
    this.show();
    this.fresh(false);
  }

  answer(answer) {
    this.answered = answer;
    this.coming.whole = true;
    this.current = this.coming; // also where too few parts came to be shown before
    this.show();
    this.fresh(true);
  }
}

/** Columns, and beside them those that tell the run, each with one value: a file that stands for itself. */
export function tidy(inputs, columns) {
  const { phases, ...rest } = inputs;
  const plain = Object.entries({ ...rest, ...phases?.[0] }).map(([name, value]) => [name, Array.isArray(value) ? value.join(" ") : value]);
  const constant = plain.filter(([name, value]) => (value === null || typeof value !== "object") && !(name in columns));
  const length = Math.max(...Object.values(columns).map((column) => column.length));
  return { ...columns, ...Object.fromEntries(constant.map(([name, value]) => [name, Array(length).fill(value)])) };
}

/** Rows that come in any order, by their key. */
export class Rows {
  constructor(key) {
    this.key = key;
    this.map = new Map();
  }

  /** The keys that rows will come for: a line is not drawn across those that are still to come. */
  expect(keys) {
    for (const key of keys) this.merge({ [this.key]: key });
  }

  merge(row) {
    this.map.set(row[this.key], { ...this.map.get(row[this.key]), ...row });
  }

  sorted() {
    return [...this.map.values()].sort((a, b) => a[this.key] - b[this.key]);
  }

  /** [key, value] of every row; NaN, where a line breaks, for values that are not known. */
  points(name, convert = number) {
    return this.sorted().map((row) => [row[this.key], convert(row[name])]);
  }

  /** [key, value] of the rows that have the value, whatever lies between them. */
  known(name) {
    return this.points(name).filter(([, value]) => !Number.isNaN(value));
  }
}
