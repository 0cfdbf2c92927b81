// The inputs: a logarithmic slider and an exact text field for each number, choices for the rest, and errors where they belong.

import { element } from "./elements.js";
import { exact, whole } from "./format.js";
import { help, meaning } from "./help.js";

const STEPS = 2000; // positions of a slider

/** Every number of a run: its words, the range of its slider (text fields take any value), and its digits. */
const NUMBERS = {
  dataset_size: { label: "Dataset size", hint: "examples", range: () => [100, 1e9], whole: true },
  poisson_batch_size: { label: "Poisson batch", hint: "mean, before the cap", range: (s) => [1, clamp(s.number("dataset_size"), 10, 1e6)], digits: 4 },
  sampling_probability: { label: "Sampling probability", hint: "chance to join a batch", range: () => [1e-6, 1], digits: 4 },
  max_batch_size: { label: "Hardware batch B", hint: "the cap: rows of a batch", range: caps, whole: true },
  noise_multiplier: { label: "Noise multiplier", hint: "noise over clipping norm", range: () => [0.3, 30], digits: 3 },
  epsilon: { label: "Target epsilon", hint: "finds the noise", range: () => [0.05, 50], digits: 3 },
  steps: { label: "Steps", hint: "batches in all", range: () => [1, 1e6], whole: true, digits: 3 },
  epochs: { label: "Epochs", hint: "draws, in data sets", range: () => [0.1, 1000], digits: 3 },
  delta: { label: "Delta", hint: "well below 1 / size", range: () => [1e-12, 1e-2], digits: 2 },
};
const PAIRED = {
  rate: [["poisson_batch_size", "batch"], ["sampling_probability", "probability"]],
  goal: [["noise_multiplier", "noise"], ["epsilon", "target"]],
  length: [["steps", "steps"], ["epochs", "epochs"]],
};

const clamp = (value, low, high) => Math.min(high, Math.max(low, Number.isFinite(value) ? value : high));

/** From a third of the mean batch to three times it: there the cap matters, and a step of the slider is a fraction of a percent. */
function caps(state) {
  const mean = clamp(state.mean(), 1, 1e9);
  return [Math.max(1, mean / 3), Math.max(4, Math.min(mean * 3, clamp(state.number("dataset_size"), 4, 1e9)))];
}

export class Fields {
  /** `choices`: the words that the library takes for each choice. */
  constructor(container, state, choices, onChange, onExchange) {
    Object.assign(this, { state, choices, onChange, onExchange });
    this.parts = {};
    container.append(
      this.number("dataset_size"), this.choice("size", "Is the size public?", "which sizes epsilon holds for"), this.pair("rate", "Sampling"), this.number("max_batch_size"),
      this.choice("overflow", "Overflow policy", "what happens to a larger batch"),
      this.pair("goal", "Privacy"), this.pair("length", "Length"), this.number("delta"),
      this.choice("adjacency", "Adjacency", "which data sets are neighbours"),
    );
    this.update();
  }

  /** A labelled slider, text field, and room for an error. */
  number(name) {
    const { label, hint } = NUMBERS[name];
    const input = element("input", { id: name, type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", "aria-describedby": `${name}-hint ${name}-error` });
    const slider = element("input", { id: `${name}-slider`, type: "range", min: 0, max: STEPS, step: 1, "aria-label": `${label}, slider` });
    const error = element("p", { id: `${name}-error`, class: "error", role: "alert" });
    const row = element("div", { class: "field", "data-name": name },
      element("label", { for: name }, label), element("span", { class: "hint", id: `${name}-hint` }, hint), input, slider, error);
    input.addEventListener("input", () => this.set(name, input.value, input));
    slider.addEventListener("input", () => this.set(name, this.moved(name, slider), slider));
    this.parts[name] = { input, slider, error, row };
    return row;
  }

  /** Two names for one thing, of which one is in use. */
  pair(pair, title) {
    const names = PAIRED[pair];
    const buttons = this.segments(pair, title, names, (name) => this.onExchange(pair, name));
    return element("div", { class: "pair" }, buttons, ...names.map(([name]) => this.number(name)));
  }

  choice(name, title, hint) {
    const options = this.choices[name].map((word) => [word, word]);
    const buttons = this.segments(name, title, options, (value) => this.set(name, value, null));
    const error = element("p", { id: `${name}-error`, class: "error", role: "alert" });
    this.parts[name] = { error, row: buttons };
    return element("div", { class: "choice", "data-name": name }, element("div", { class: "title" }, element("span", { "aria-hidden": "true" }, title), help(name)), element("span", { class: "hint" }, hint), buttons, error);
  }

  /** A group of radio buttons that looks like one control. */
  segments(name, title, options, onPick) {
    const group = element("div", { class: "segments", role: "radiogroup", "aria-label": title });
    for (const [value, label] of options) {
      const input = element("input", { type: "radio", name: `${name}-choice`, id: `${name}-${value}`, value });
      input.addEventListener("change", () => onPick(value));
      group.append(input, element("label", { for: `${name}-${value}`, title: meaning(value) }, label));
    }
    return group;
  }

  set(name, value, source) {
    this.state.values[name] = value;
    this.update(source);
    this.onChange(name, source?.type === "range");
  }

  /** The value that a slider has been moved to: another one than before, however small the step. */
  moved(name, slider) {
    const before = this.state.values[name];
    const from = this.position(name);
    const way = Math.sign(Number(slider.value) - from);
    let position = Number(slider.value);
    while (this.snapped(name, position) === before && way && position > 0 && position < STEPS) position += way;
    slider.value = position;
    return this.snapped(name, position);
  }

  /** The value at a slider's position, rounded to what its field would say. */
  snapped(name, position) {
    const { range, whole: isWhole, digits = 4 } = NUMBERS[name];
    const [low, high] = range(this.state);
    const value = low * (high / low) ** (position / STEPS);
    if (isWhole && (name !== "steps" || value < 1000)) return exact(Math.round(name === "dataset_size" ? Number(value.toPrecision(3)) : value));
    return exact(Number(value.toPrecision(digits)));
  }

  position(name) {
    const [low, high] = NUMBERS[name].range(this.state);
    const value = this.state.number(name);
    if (!(value > 0)) return 0;
    return Math.round(Math.min(1, Math.max(0, Math.log(value / low) / Math.log(high / low))) * STEPS);
  }

  /** Show the state; `source` is the control that a person is moving, and is left alone. */
  update(source = null) {
    for (const [name, { input, slider, row }] of Object.entries(this.parts)) {
      if (!input) {
        const chosen = row.querySelector(`[value="${CSS.escape(this.state.values[name] ?? "")}"]`);
        row.querySelectorAll("input").forEach((one) => (one.checked = one === chosen));
        continue;
      }
      if (input !== source) input.value = this.state.values[name] ?? "";
      if (slider !== source) slider.value = this.position(name);
      const value = this.state.number(name);
      slider.setAttribute("aria-valuetext", Number.isFinite(value) ? (NUMBERS[name].whole ? whole(value) : exact(value)) : "not a number");
      slider.style.setProperty("--share", `${(100 * slider.value) / STEPS}%`);
    }
    for (const [pair, names] of Object.entries(PAIRED)) {
      for (const [name] of names) {
        const used = this.state.use[pair] === name;
        this.parts[name].row.hidden = !used;
        document.getElementById(`${pair}-${name}`).checked = used;
      }
    }
  }

  /** Put an error where it belongs; without a field of its own it is the caller's to show. */
  refuse(message, field) {
    this.accept();
    const part = this.parts[field];
    if (!part || part.row.hidden) return false;
    part.error.textContent = message;
    part.input?.setAttribute("aria-invalid", "true");
    return true;
  }

  accept() {
    for (const { error, input } of Object.values(this.parts)) {
      if (error.textContent) error.textContent = "";
      input?.removeAttribute("aria-invalid");
    }
  }
}
