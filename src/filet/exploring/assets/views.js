// The six views: what each asks for, how its parts add up, and how it is drawn.

import { Card, Rows } from "./cards.js";
import { scale, shape, ticks } from "./chart.js";
import { down, number, percent, percentDown, percentUp, text, up, whole } from "./format.js";

const KINDS = [
  ["truncate", "union", "truncate, union bound", "s-union"],
  ["truncate", "note", "truncate, the note (Ganesh, 2025)", "s-note"],
  ["truncate", "swap", "truncate, swap", "s-swap"],
  ["truncate", "refined", "truncate, refined (default)", "s-refined"],
  ["reject", "refined", "reject", "s-reject"],
];
const policyClass = (policy) => (policy === "reject" ? "s-reject" : "s-refined");
const extent = (values) => [Math.min(...values), Math.max(...values)];

/** Epsilon of every policy and analysis, now. */
export class Comparison extends Card {
  constructor(container) {
    super(container, {
      id: "compare",
      title: "What each analysis can prove",
      caption: "The same run, priced by every policy and analysis; shorter is better. The dark part of a bar is lost for certain: an explicit attack proves it. The light part is what the analysis cannot rule out. No cap is plain Poisson sampling, for comparison.",
    });
    this.rows = [];
  }

  part(part) {
    const { row, ...rest } = part;
    if (this.root.dataset.state === "waiting") this.rows = [];
    this.rows[row] = rest;
    this.show();
    this.fresh(false);
  }

  answer(answer) {
    this.answered = answer;
    this.rows = answer.result;
    this.show();
    this.fresh(true);
  }

  show() {
    const value = (row) => number(Object.values(row.epsilon)[0]);
    const rows = this.rows.filter(Boolean).map((row) => ({ ...row, value: value(row) }));
    const attacks = Object.fromEntries(rows.filter((row) => row.analysis === "attack").map((row) => [row.policy, row.value]));
    const bars = rows.filter((row) => row.analysis !== "attack").map((row) => ({
      name: row.policy === "no cap" ? "no cap" : row.policy === "reject" ? "reject" : `truncate, ${row.analysis}`,
      value: row.value,
      attack: attacks[row.policy],
      cls: row.policy === "no cap" ? "s-free" : row.policy === "reject" ? "s-reject" : `s-${row.analysis}`,
    }));
    this.bars = bars;
    const best = bars.map((bar) => `${bar.name} ${up(bar.value)}`).join(", ");
    this.images[0].show({ id: this.id, label: `Bars of epsilon: ${best}`, bars, draw: drawBars });
    this.explain([
      { kind: "bar", cls: "s-any", label: "proven lost (attack)" },
      { kind: "bar", cls: "s-any slack", label: "not ruled out" },
    ]);
    const note = bars.find((bar) => bar.name === "truncate, note");
    const refined = bars.find((bar) => bar.name === "truncate, refined");
    if (note && refined && Number.isFinite(note.value)) {
      const gain = 1 - refined.value / note.value;
      this.reading.textContent = gain > 0.005 ? `For these truncated batches filet's default proves an epsilon ${percent(gain, 2)} below that of the note's analysis.` : "With this much head-room all analyses agree: almost no batch overflows.";
    }
  }

  columns() {
    const rows = this.rows.filter(Boolean);
    return { policy: rows.map((row) => row.policy), analysis: rows.map((row) => row.analysis), epsilon: rows.map((row) => Object.values(row.epsilon)[0]) };
  }
}

/** Bars from zero, each with its name and its number. */
function drawBars(svg, spec, width) {
  const step = 27;
  const height = spec.bars.length * step + 30;
  const [left, right] = [116, width - 58];
  const finite = spec.bars.map((bar) => bar.value).filter(Number.isFinite);
  const x = scale([0, Math.max(...finite, 0.01) * 1.02], [left, right]);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const axes = shape("g", { class: "axes" });
  for (const value of ticks([0, x.high], false, Math.max(2, Math.round((right - left) / 80)))) {
    axes.append(shape("line", { x1: x(value), x2: x(value), y1: 2, y2: height - 26, class: "grid" }), shape("text", { x: x(value), y: height - 8, "text-anchor": "middle" }, text(value, 3)));
  }
  const drawn = spec.bars.flatMap((bar, i) => {
    const y = i * step + 5;
    const end = Number.isFinite(bar.value) ? x(bar.value) : right;
    const solid = bar.attack > 0 ? Math.min(x(bar.attack), end) : left;
    const extra = Number.isFinite(bar.value) ? "" : " endless";
    return [
      shape("text", { x: left - 8, y: y + 13, "text-anchor": "end", class: "name" }, bar.name),
      shape("rect", { x: left, y, width: Math.max(0, end - left), height: 17, rx: 2, class: `bar slack ${bar.cls}${extra}` }),
      shape("rect", { x: left, y, width: Math.max(0, solid - left), height: 17, rx: 2, class: `bar ${bar.cls}` }),
      shape("text", { x: right + 8, y: y + 13, class: "value" }, up(bar.value)),
    ];
  });
  svg.replaceChildren(axes, ...drawn, shape("g", { class: "cursor" }));
  return { x, box: { left, right, top: 0, bottom: height } };
}

/** From a coarse lower line to a finer upper one: [x, low, high] wherever both are known. */
function between(low, high) {
  return high.flatMap(([x, top]) => {
    const right = low.findIndex(([at]) => at >= x);
    if (right < 0 || (right === 0 && low[0][0] > x)) return [];
    const [[a, from], [b, to]] = [low[Math.max(0, right - 1)], low[right]];
    return [[x, b === a ? to : from + ((to - from) * (x - a)) / (b - a), top]];
  });
}

/** Epsilon against the cap. */
export class EpsilonCap extends Card {
  constructor(container) {
    super(container, {
      id: "epsilon-cap",
      title: "Epsilon against the cap",
      caption: "How much head-room does privacy need? To the right batches rarely overflow and every line meets plain Poisson sampling; to the left caps save rows, and the analyses part. The band is where the truth lies: below the proven bound, above the best known attack. Lines join computed points.",
      wide: true,
    });
  }

  begin(given, note) {
    super.begin();
    this.coming = { rows: new Rows("max_batch_size"), note };
  }

  part(part) {
    if ("no_cap" in part) this.coming.free = number(part.no_cap);
    else this.coming.rows.merge(part);
    if (this.coming.rows.map.size < 3 && this.current) return;
    this.current = this.coming;
    this.show();
    this.fresh(false);
  }

  answer(answer) {
    this.answered = answer;
    this.show();
    this.fresh(true);
  }

  show() {
    const { rows, note, free } = this.current;
    const lines = KINDS.map(([policy, analysis, label, cls]) => ({ label, cls, name: `epsilon_${policy}_${analysis}` }));
    const values = lines.flatMap((line) => rows.points(line.name, number).map(([, value]) => value)).filter((value) => Number.isFinite(value) && value > 0);
    if (!values.length) return;
    const caps = rows.sorted().map((row) => row.max_batch_size);
    const low = Math.min(...values);
    const attack = `epsilon_${note.overflow}_attack`;
    const band = between(rows.points(attack, number), rows.points(`epsilon_${note.overflow}_refined`, number));
    const floor = Math.min(low, ...band.map(([, one]) => one)) * 0.94;
    const spread = caps.length > 1 ? 0.02 * (caps.at(-1) - caps[0]) : 1;
    this.images[0].show({
      id: this.id,
      label: `Line chart: epsilon against the cap from ${whole(caps[0])} to ${whole(caps.at(-1))} rows, one line for each policy and analysis`,
      height: 320,
      x: { label: "hardware batch B (rows)", range: [caps[0] - spread, caps.at(-1) + spread], format: (value) => text(value, 6) },
      y: { label: "epsilon", range: [floor, Math.min(Math.max(...values) * 1.1, low * 8)], log: true },
      layers: [
        { type: "area", points: band, cls: policyClass(note.overflow) },
        { type: "horizontal", y: free, cls: "s-free" },
        ...lines.map((line) => ({ type: "line", points: rows.points(line.name, number), cls: line.cls })),
        { type: "line", points: rows.points(attack, number), cls: "s-attack" },
        { type: "vertical", x: note.max_batch_size, label: `B = ${whole(note.max_batch_size)}` },
      ],
      cursor: caps,
    });
    const at = (name, round) => (x) => {
      const row = rows.map.get(x ?? note.max_batch_size);
      return row && name in row ? round(number(row[name])) : "";
    };
    this.explain([
      { kind: "line", cls: "s-free", label: "no cap", value: () => up(free) },
      ...lines.map((line) => ({ kind: "line", cls: line.cls, label: line.label, value: at(line.name, up) })),
      { kind: "area", cls: policyClass(note.overflow), label: `truth for ${note.overflow}` },
      { kind: "line", cls: "s-attack", label: "best known attack", value: at(attack, down) },
    ]);
    this.about = note.about;
  }

  read(x) {
    super.read(x);
    this.reading.textContent = x === null || x === undefined ? "Values at your B; point at the picture, or use the arrow keys on it, for others." : `Values at B = ${whole(x)}`;
  }

  columns() {
    return this.current.rows.columns();
  }
}

/** The law of batch sizes. */
export class BatchSizes extends Card {
  constructor(container) {
    super(container, {
      id: "batch-sizes",
      title: "Batch sizes and wasted rows",
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
    const often = marks.overflow_probability > 1e-9 ? `one batch in ${whole(Math.max(1, 1 / marks.overflow_probability))} overflows` : "practically no batch overflows";
    this.reading.textContent = x !== null && x !== undefined ? `Chances of exactly ${whole(x)} examples` : `On average ${text(marks.expected_batch_size)} of ${whole(marks.max_batch_size)} rows hold examples; ${often}.`;
  }

  columns() {
    return this.answered.result.columns;
  }
}

/** Rows in use and noise against the cap. */
export class Utilization extends Card {
  constructor(container) {
    super(container, {
      id: "utilization",
      title: "Rows in use and noise",
      caption: "At the same epsilon and sampling rate: a smaller B wastes fewer rows (above), but cut batches need more noise for each example (below). The star is what the planner would do at your B, with a sampling rate of its own choice.",
      pictures: 2,
    });
  }

  begin(given, note) {
    super.begin();
    this.coming = { rows: new Rows("max_batch_size"), best: {}, note, given };
  }

  part(part) {
    if ("best" in part) this.coming.best[part.best] = part.option;
    else this.coming.rows.merge(part);
    if (!this.coming.rows.points("effective_noise_reject").length && this.current) return;
    this.current = this.coming;
    this.show();
    this.fresh(false);
  }

  answer(answer) {
    this.answered = answer;
    this.show();
    this.fresh(true);
  }

  show() {
    const { rows, best, note } = this.current;
    const caps = rows.sorted().map((row) => row.max_batch_size);
    if (!caps.length) return;
    const x = { label: "hardware batch B (rows)", range: [caps[0], Math.max(caps.at(-1), caps[0] + 1)], format: (value) => text(value, 6) };
    const here = { type: "vertical", x: note.max_batch_size, label: `B = ${whole(note.max_batch_size)}`, low: true };
    const star = (name) => ["truncate", "reject"].filter((policy) => best[policy]).map((policy) => ({ type: "point", shape: "star", x: note.max_batch_size, y: best[policy][name], cls: policyClass(policy) }));
    const lines = (name) => ["truncate", "reject"].map((policy) => ({ type: "line", points: rows.points(`${name}_${policy}`), cls: policyClass(policy) }));
    const noises = ["truncate", "reject"].flatMap((policy) => [...rows.points(`effective_noise_${policy}`).map(([, value]) => value), best[policy]?.effective_noise ?? NaN]).filter(Number.isFinite);
    const used = ["truncate", "reject"].flatMap((policy) => rows.points(`utilization_${policy}`).map(([, value]) => value));
    const least = Math.max(0, 1 - 1.25 * (1 - Math.min(...used, 0.98)));
    this.images[0].show({
      id: `${this.id}-rows`, height: 310, x: { ...x, label: "" }, cursor: caps,
      label: "Line chart: share of rows in use against the hardware batch",
      y: { label: "rows in use", range: [least, 1], format: (value) => percent(value, 3).replace(" ", "\u2009") },
      layers: [...lines("utilization"), here, ...star("utilization")],
    });
    if (noises.length) {
      const [low, high] = extent(noises);
      this.images[1].show({
        id: `${this.id}-noise`, height: 320, x, cursor: caps,
        label: "Line chart: noise for each example against the hardware batch",
        y: { label: "noise", range: [low / 1.08, Math.max(high * 1.08, low * 1.3)], log: true, format: (value) => text(value, 2) },
        layers: [...lines("effective_noise"), { ...here, label: "" }, ...star("effective_noise")],
      });
    }
    const at = (name, round) => (cap) => {
      const row = rows.map.get(cap ?? note.max_batch_size);
      return row?.[name] === undefined || row[name] === null ? "" : round(row[name]);
    };
    this.explain(["truncate", "reject"].map((policy) => {
      const [used, noise] = [at(`utilization_${policy}`, (value) => percent(value)), at(`effective_noise_${policy}`, (value) => up(value, 3))];
      return { kind: "line", cls: policyClass(policy), label: `${policy}: rows in use, noise`, value: (cap) => [used(cap), noise(cap)].filter(Boolean).join(", ") };
    }).concat({ kind: "star", cls: policyClass(note.overflow), label: "planner's optimum at your B" }));
    const found = best[note.overflow];
    this.reading.textContent = found
      ? `Planner, ${note.overflow}: mean draw ${text(found.sampling_probability * found.dataset_size)}, noise multiplier ${up(found.noise_multiplier, 4)}, ${percent(found.utilization)} of the rows in use, ${up(found.effective_noise, 3)} noise per example.`
      : "";
    this.about = `${note.about}; at epsilon ${exactly(this.current.given.epsilon)}`;
  }

  columns() {
    return this.current.rows.columns();
  }
}

const exactly = (value) => (typeof value === "number" ? text(value, 6) : String(value));

/** Delta as a function of epsilon. */
export class Profile extends Card {
  constructor(container) {
    super(container, {
      id: "delta-epsilon",
      title: "Delta at every epsilon",
      caption: "One run keeps many promises at once. Every point on the line is one: epsilon across, and the delta with which it may fail upwards. The band reaches down to what an attacker with knowledge of everyone else's data achieves.",
    });
  }

  begin(given, note) {
    super.begin();
    this.coming = { rows: new Rows("delta"), note };
  }

  part(part) {
    this.coming.rows.merge(part);
    if (this.coming.rows.map.size < 3 && this.current) return;
    this.current = this.coming;
    this.show();
    this.fresh(false);
  }

  answer(answer) {
    this.answered = answer;
    this.show();
    this.fresh(true);
  }

  show() {
    const { rows, note } = this.current;
    const points = rows.sorted().map((row) => ({ delta: row.delta, upper: number(row.epsilon_upper), attack: number(row.epsilon_attack) })).filter((one) => Number.isFinite(one.upper));
    if (!points.length) return;
    const cls = policyClass(note.overflow);
    const now = points.find((one) => one.delta === note.delta);
    const [low, high] = extent(points.map((one) => one.delta));
    this.images[0].show({
      id: this.id,
      label: `Line chart: delta from ${text(low, 2)} to ${text(high, 2)} against epsilon`,
      x: { label: "epsilon", range: [0, Math.max(...points.map((one) => one.upper), 0.01) * 1.04] },
      y: { label: "delta", range: [low, high], log: true, format: (value) => text(value, 2) },
      layers: [
        { type: "polygon", points: [...points.map((one) => [one.upper, one.delta]), ...points.map((one) => [one.attack, one.delta]).reverse()], cls },
        { type: "line", points: points.map((one) => [one.attack, one.delta]), cls: "s-attack" },
        { type: "line", points: points.map((one) => [one.upper, one.delta]), cls },
        ...(now ? [{ type: "point", x: now.upper, y: now.delta, cls }] : []),
      ],
      cursor: points.map((one) => one.upper),
    });
    const at = (x) => (x === null || x === undefined ? now : points.find((one) => one.upper === x));
    this.explain([
      { kind: "line", cls, label: "proven: epsilon", value: (x) => (at(x) ? up(at(x).upper) : "") },
      { kind: "line", cls: "s-attack", label: "attack with all others zero", value: (x) => (at(x) ? down(at(x).attack) : "") },
      { kind: "point", cls, label: "at delta", value: (x) => (at(x) ? text(at(x).delta, 3) : "") },
    ]);
    this.about = note.about;
  }

  columns() {
    return this.current.rows.columns();
  }
}

/** The power of membership attacks. */
export class TradeOff extends Card {
  constructor(container) {
    super(container, {
      id: "trade-off",
      title: "What an attacker can find out",
      caption: "Someone guesses whether one example was in the training data. Accusing this share of innocents (across), no attack whatsoever can find more members than the line (upwards). The dotted line is guessing; the band reaches down to an attack that works.",
    });
  }

  answer(answer, note) {
    this.answered = answer;
    this.about = note.about;
    const { false_positive_rate: rates, true_positive_rate_upper: upper, true_positive_rate_lower: lower } = answer.result.columns;
    const cls = policyClass(note.overflow);
    this.rates = rates;
    this.images[0].show({
      id: this.id,
      label: "Line chart: largest true positive rate of any membership attack against its false positive rate",
      x: { label: "false positive rate", range: [1e-6, 1], log: true, format: (value) => text(value, 1) },
      y: { label: "true positive rate", range: [0, 1], format: (value) => percent(value, 2).replace(" ", "\u2009") },
      layers: [
        { type: "area", points: rates.map((rate, i) => [rate, lower[i], upper[i]]), cls },
        { type: "line", points: rates.map((rate) => [rate, rate]), cls: "s-guess" },
        { type: "line", points: rates.map((rate, i) => [rate, lower[i]]), cls: "s-attack" },
        { type: "line", points: rates.map((rate, i) => [rate, upper[i]]), cls },
      ],
      cursor: rates,
    });
    const usual = rates.reduce((best, rate) => (Math.abs(Math.log(rate / 0.01)) < Math.abs(Math.log(best / 0.01)) ? rate : best));
    const at = (values) => (x) => values[rates.indexOf(x ?? usual)];
    this.explain([
      { kind: "line", cls, label: "any attack, at most", value: (x) => percentUp(at(upper)(x)) },
      { kind: "line", cls: "s-attack", label: "an attack that works", value: (x) => percentDown(at(lower)(x)) },
      { kind: "line", cls: "s-guess", label: "guessing", value: (x) => percent(x ?? usual, 3) },
    ]);
    this.usual = usual;
    this.fresh(true);
    this.read(null);
  }

  read(x) {
    super.read(x);
    if (this.rates) this.reading.textContent = `Values where ${percent(x ?? this.usual, 2)} of the innocent are accused`;
  }

  columns() {
    return this.answered.result.columns;
  }
}
