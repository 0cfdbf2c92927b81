// What the cap does to batches: their sizes, the rows in use, and the noise that a target takes.

import { Card, FillingCard, extent, policyClass } from "./cards.js";
import { percent, text, up, whole } from "./format.js";

const exactly = (value) => (typeof value === "number" ? text(value, 6) : String(value));

const overflows = (chance) => (chance > 0.4 ? `${percent(chance, 2)} of the batches overflow` : chance > 1e-9 ? `one batch in ${whole(1 / chance)} overflows` : "practically no batch overflows");

/** The law of batch sizes. */
export class BatchSizes extends Card {
  constructor(container) {
    super(container, {
      id: "batch-sizes",
      title: "Batch sizes and wasted rows",
      page: "policies.html",
      caption: "Poisson batches vary in size, the hardware's do not. The shaded stretch, from the mean batch to the cap, is padding: rows that are computed and thrown away. What lies beyond the cap overflows, and the policy repairs it.",
    });
  }

  answer(answer, note) {
    this.answered = answer;
    const { columns, marks } = answer.result;
    this.marks = marks;
    this.about = note.about;
    const rows = columns.size.map((size, i) => ({ size, capped: columns.probability[i], free: columns.probability_without_cap[i] }));
    const cap = marks.max_batch_size;
    const reject = note.overflow === "reject";
    const top = Math.max(...rows.map((row) => row.free), ...rows.filter((row) => row.size < cap).map((row) => row.capped)) * 1.18;
    const inside = rows.filter((row) => row.size <= cap);
    const atCap = rows.find((row) => row.size === cap);
    const area = (chosen, pick) => chosen.map((row) => [row.size, 0, pick(row)]);
    const range = [rows[0].size, Math.max(rows.at(-1).size, Math.min(cap * 1.02, rows.at(-1).size * 1.3))];
    this.images[0].show({
      id: this.id,
      label: `Distribution of batch sizes: mean ${text(marks.expected_batch_size)}, cap ${whole(cap)}, ${percent(1 - marks.utilization)} of the rows wasted`,
      x: { label: "examples in a batch", range, format: (value) => text(value, 5) },
      y: { label: "probability", range: [0, top], format: (value) => percent(value, 2).replace(" ", "\u2009") },
      layers: [
        { type: "span", from: marks.expected_batch_size, to: cap, cls: "waste" },
        { type: "area", points: area(reject ? inside : inside.filter((row) => row.size < cap), (row) => row.capped), cls: policyClass(note.overflow) },
        { type: "area", points: area(rows.filter((row) => row.size >= cap), (row) => row.free), cls: "s-union" },
        { type: "line", points: rows.map((row) => [row.size, row.free]), cls: "s-free" },
        ...(reject || !atCap || cap >= answer.inputs.dataset_size ? [] : [{ type: "bar", x: cap, y: atCap.capped, cls: "s-refined" }]),
        { type: "vertical", x: cap, label: `cap ${whole(cap)}` },
      ],
      cursor: rows.map((row) => row.size),
    });
    const chance = (name) => (x) => (x === null ? "" : percent(rows.find((row) => row.size === x)?.[name] ?? 0, 2));
    this.explain([
      { kind: "line", cls: "s-free", label: "Poisson, no cap", value: chance("free") },
      { kind: "area", cls: policyClass(note.overflow), label: `after ${note.overflow}`, value: chance("capped") },
      { kind: "area", cls: "s-union", label: "overflows", value: () => percent(marks.overflow_probability, 2) },
      { kind: "span", cls: "waste", label: "wasted rows, on average", value: () => text(cap - marks.expected_batch_size, 3) },
    ]);
    this.fresh(true);
  }

  read(x) {
    super.read(x);
    const { marks } = this;
    if (!marks) return;
    const often = overflows(marks.overflow_probability);
    this.reading.textContent = x !== null && x !== undefined ? `Chances of exactly ${whole(x)} examples` : `On average ${text(marks.expected_batch_size)} of ${whole(marks.max_batch_size)} rows hold examples; ${often}.`;
  }
}

/** Rows in use and noise against the cap. */
export class Utilization extends FillingCard {
  constructor(container) {
    super(container, {
      id: "utilization",
      title: "Rows in use and noise",
      page: "planning.html",
      caption: "At the same epsilon and sampling rate: a smaller B wastes fewer rows (above), but cut batches need more noise for each example (below). The star is what the planner would do at your B, with a sampling rate of its own choice.",
      pictures: 2,
    });
    this.column = "max_batch_size";
  }

  begin(given, note) {
    super.begin(given, note);
    this.coming.best = {};
  }

  part(part) {
    if ("best" in part) this.coming.best[part.best] = part.option;
    else this.coming.rows.merge(part);
    this.grown(this.coming.rows.known("effective_noise_reject").length > 0);
  }

  show() {
    const { rows, best, note } = this.current;
    const caps = rows.sorted().map((row) => row.max_batch_size);
    if (!caps.length) return;
    const x = { label: "hardware batch B (rows)", range: [caps[0], Math.max(caps.at(-1), caps[0] + 1)], format: (value) => text(value, 6) };
    const here = { type: "vertical", x: note.max_batch_size, label: `B = ${whole(note.max_batch_size)}`, low: true };
    const policies = ["truncate", "reject"].filter((policy) => rows.known(`utilization_${policy}`).length); // a size that is not public has one
    const star = (name) => policies.filter((policy) => best[policy]).map((policy) => ({ type: "point", shape: "star", x: note.max_batch_size, y: best[policy][name], cls: policyClass(policy) }));
    const lines = (name) => policies.map((policy) => ({ type: "line", points: rows.points(`${name}_${policy}`), cls: policyClass(policy) }));
    const noises = policies.flatMap((policy) => [...rows.points(`effective_noise_${policy}`).map(([, value]) => value), best[policy]?.effective_noise ?? NaN]).filter(Number.isFinite);
    const used = policies.flatMap((policy) => rows.points(`utilization_${policy}`).map(([, value]) => value)).filter(Number.isFinite);
    const least = Math.max(0, 1 - 1.25 * (1 - Math.min(...used, 0.98)));
    this.images[0].show({
      id: `${this.id}-rows`, height: 310, x: { ...x, label: "" }, cursor: caps,
      label: "Line chart: share of rows in use against the hardware batch",
      y: { label: "share of the rows in use", range: [least, 1], format: (value) => percent(value, 3).replace(" ", "\u2009") },
      layers: [...lines("utilization"), here, ...star("utilization")],
    });
    if (noises.length) {
      const [low, high] = extent(noises);
      this.images[1].show({
        id: `${this.id}-noise`, height: 320, x, cursor: caps,
        label: "Line chart: noise for each example against the hardware batch",
        y: { label: "noise for each example", range: [low / 1.08, Math.max(high * 1.08, low * 1.3)], log: true, format: (value) => text(value, 2) },
        layers: [...lines("effective_noise"), { ...here, label: "" }, ...star("effective_noise")],
      });
    }
    const at = (name, round) => (cap) => {
      const row = rows.map.get(cap ?? note.max_batch_size);
      return row?.[name] === undefined || row[name] === null ? "" : round(row[name]);
    };
    const found = best[note.overflow];
    this.explain(policies.map((policy) => {
      const [used, noise] = [at(`utilization_${policy}`, (value) => percent(value)), at(`effective_noise_${policy}`, (value) => up(value, 3))];
      return { kind: "line", cls: policyClass(policy), label: `${policy}: rows in use, noise`, value: (cap) => [used(cap), noise(cap)].filter(Boolean).join(", ") };
    }).concat(found ? { kind: "star", cls: policyClass(note.overflow), label: "planner's optimum at your B" } : []));
    this.reading.textContent = found
      ? `Planner, ${note.overflow}: mean draw ${text(found.sampling_probability * found.dataset_size)}, noise multiplier ${up(found.noise_multiplier, 4)}, ${percent(found.utilization)} of the rows in use, ${up(found.effective_noise, 3)} noise per example.`
      : note.overflow in best ? `The planner has no run of policy ${note.overflow} and size ${note.size} for this target.` : "";
    this.about = `${note.about}; at epsilon ${exactly(this.current.given.epsilon)}`;
  }

  columns() {
    const columns = super.columns();
    for (const [policy, option] of Object.entries(this.answered.result.best)) {
      for (const name of ["sampling_probability", "noise_multiplier", "utilization", "effective_noise"]) {
        columns[`planner_${name}_${policy}`] = columns.max_batch_size.map((cap) => (cap === this.current.note.max_batch_size ? option?.[name] : null));
      }
    }
    return columns;
  }
}
