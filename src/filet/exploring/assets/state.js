// What the page is about: the values of all fields as text, which alternative of each pair is in use, and the URL.

import { exact, parsed } from "./format.js";

/** Pairs of names of which exactly one is given. */
export const PAIRS = {
  rate: ["poisson_batch_size", "sampling_probability"],
  goal: ["noise_multiplier", "epsilon"],
  length: ["steps", "epochs"],
};
const ALWAYS = ["dataset_size", "size", "max_batch_size", "overflow", "delta", "adjacency"];
export const START = { adjacency: "zero-out", overflow: "truncate", size: "public" };

export class State {
  constructor(run) {
    this.values = {};
    this.use = { rate: "poisson_batch_size", goal: "noise_multiplier", length: "steps" };
    this.load({ ...START, ...run });
  }

  /** Take over the keys of a run; keys of a pair displace each other. */
  load(run) {
    for (const [name, value] of Object.entries(run)) {
      this.values[name] = typeof value === "number" ? exact(value) : String(value);
      for (const [pair, names] of Object.entries(PAIRS)) if (names.includes(name)) this.use[pair] = name;
    }
  }

  number(name) {
    const value = parsed(this.values[name] ?? "");
    return typeof value === "number" ? value : NaN;
  }

  names() {
    return [...ALWAYS.slice(0, 2), this.use.rate, ...ALWAYS.slice(2, 4), this.use.goal, this.use.length, ...ALWAYS.slice(4)];
  }

  /** The keys that are in use, with their values: what the server is asked, and what the URL says. */
  run() {
    return Object.fromEntries(this.names().map((name) => [name, parsed(this.values[name] ?? "")]));
  }

  /** The mean size of a Poisson batch, as far as the fields tell. */
  mean() {
    const size = this.number("dataset_size");
    return this.use.rate === "poisson_batch_size" ? this.number("poisson_batch_size") : size * this.number("sampling_probability");
  }

  /** The number of steps: given, or enough for the epochs. */
  steps() {
    if (this.use.length === "steps") return this.number("steps");
    return Math.max(0, Math.ceil(((this.number("epochs") * this.number("dataset_size")) / this.mean()) * (1 - 1e-12)));
  }

  /** Use the other name of a pair, at the same run where the fields tell what it is. */
  exchange(pair, name, known = {}) {
    if (this.use[pair] === name) return;
    const size = this.number("dataset_size");
    const mean = this.mean();
    const values = {
      poisson_batch_size: () => mean,
      sampling_probability: () => mean / size,
      steps: () => this.steps(),
      epochs: () => (this.number("steps") * mean) / size,
      noise_multiplier: () => known.noise_multiplier,
      epsilon: () => known.epsilon,
    };
    const value = values[name]();
    if (Number.isFinite(value) && value > 0) this.values[name] = exact(Number(value.toPrecision(name === "epochs" ? 4 : 15)));
    else this.values[name] ??= "";
    this.use[pair] = name;
  }

  toHash() {
    const pairs = this.names().map((name) => `${name}=${encodeURIComponent(this.values[name] ?? "")}`);
    return `#${pairs.join("&")}`;
  }

  /** The run that a URL describes; null if it describes none. */
  static fromHash(hash) {
    const given = Object.fromEntries(new URLSearchParams(hash.replace(/^#/, "")));
    const known = [...ALWAYS, ...Object.values(PAIRS).flat()];
    const run = Object.fromEntries(known.filter((name) => name in given).map((name) => [name, given[name].slice(0, 60)]));
    return Object.keys(run).length ? run : null;
  }
}
