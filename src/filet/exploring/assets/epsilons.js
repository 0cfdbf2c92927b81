// Epsilon now and against the cap, for every policy and analysis.

import { Card, FillingCard, policyClass, tidy } from "./cards.js";
import { scale, shape, ticks } from "./chart.js";
import { down, number, percent, text, up, whole } from "./format.js";
import { meaning } from "./help.js";

const KINDS = [
  ["truncate", "union", "truncate, union bound", "s-union"],
  ["truncate", "note", "truncate, the note (Ganesh, 2025)", "s-note"],
  ["truncate", "swap", "truncate, swap", "s-swap"],
  ["truncate", "refined", "truncate, refined (default)", "s-refined"],
  ["reject", "refined", "reject", "s-reject"],
];

/** What is compared is every policy, and only a public size has them all. */
const compared = (note) => (note.size === "public" ? "" : ` Drawn for a public number of records; the epsilon at the top is for size ${note.size}.`);

/** Epsilon of every policy and analysis, now. */
export class Comparison extends Card {
  constructor(container) {
    super(container, {
      id: "compare",
      title: "What each analysis proves",
      page: "accounting.html#analyses",
      topic: "analyses",
      caption: "The same run, priced by every policy and analysis; shorter is better. The solid part of a bar is lost for certain: an explicit attack proves it. The pale part is what the analysis cannot rule out. No cap is plain Poisson sampling, for comparison.",
    });
    this.rows = [];
  }

  begin(given, note) {
    super.begin();
    this.coming = [];
    this.note = note;
  }

  part(part) {
    const { row, ...rest } = part;
    this.coming[row] = rest;
    this.rows = this.coming;
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
      word: row.policy === "truncate" ? row.analysis : row.policy,
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
    this.reading.textContent = lesson(bars) + compared(this.note);
    this.about = this.note.about;
  }

  columns() {
    const { inputs, result } = this.answered;
    const rows = result.flatMap(({ epsilon, ...row }) => Object.entries(epsilon).map(([adjacency, value]) => ({ ...row, adjacency, epsilon: value })));
    const { adjacency: _, ...rest } = inputs;
    const columns = Object.fromEntries(Object.keys(rows[0]).map((name) => [name, rows.map((row) => row[name])]));
    return tidy({ ...rest }, columns);
  }
}

/** What the bars say in words, once those that matter are there. */
function lesson(bars) {
  const [union, note, refined] = ["union", "note", "refined"].map((analysis) => bars.find((bar) => bar.name === `truncate, ${analysis}`)?.value);
  if (refined === Infinity) return "No analysis proves a finite epsilon for truncated batches.";
  if (refined === 0) return "Nothing is lost at this delta.";
  if (!(refined > 0 && note > 0)) return "";
  const gain = 1 - refined / note;
  if (gain > 0.005) return `For these truncated batches filet's default proves an epsilon ${percent(gain, 2)} below that of the note's analysis.`;
  return union < 1.005 * refined ? "With this much head-room all analyses agree: almost no batch overflows." : "Here the note's analysis proves as much as filet's default.";
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
  const axes = shape("g", { class: "axes" }, shape("text", { x: left - 8, y: height - 8, "text-anchor": "end" }, "epsilon"));
  for (const value of ticks([0, x.high], false, Math.max(3, Math.round((right - left) / 80)))) {
    axes.append(shape("line", { x1: x(value), x2: x(value), y1: 2, y2: height - 26, class: "grid" }), shape("text", { x: x(value), y: height - 8, "text-anchor": "middle" }, text(value, 3)));
  }
  const drawn = spec.bars.flatMap((bar, i) => {
    const y = i * step + 5;
    const end = Number.isFinite(bar.value) ? x(bar.value) : right;
    const solid = bar.attack > 0 ? Math.min(x(bar.attack), end) : left;
    const extra = Number.isFinite(bar.value) ? "" : " endless";
    return [
      shape("text", { x: left - 8, y: y + 13, "text-anchor": "end", class: "name" }, shape("title", {}, meaning(bar.word) ?? ""), bar.name),
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
export class EpsilonCap extends FillingCard {
  constructor(container) {
    super(container, {
      id: "epsilon-cap",
      title: "Epsilon against the cap",
      page: "policies.html",
      topic: "analyses",
      caption: "How much head-room does privacy need? To the right batches rarely overflow and every line meets plain Poisson sampling; to the left caps save rows, and the analyses part. The band is where the truth lies: below the proven bound, above the best known attack. Lines join neighbouring caps that are computed; the attack is computed at a few, the dots.",
      wide: true,
    });
    this.column = "max_batch_size";
  }

  part(part) {
    if ("caps" in part) this.coming.rows.expect(part.caps);
    else if ("no_cap" in part) this.coming.free = number(part.no_cap);
    else this.coming.rows.merge(part);
    this.grown(this.coming.rows.known("epsilon_truncate_refined").length >= 3);
  }

  show() {
    const { rows, note, free, whole: complete } = this.current;
    const lines = KINDS.map(([policy, analysis, label, cls]) => ({ label, cls, word: policy === "reject" ? policy : analysis, name: `epsilon_${policy}_${analysis}` }));
    const values = lines.flatMap((line) => rows.points(line.name).map(([, value]) => value)).filter((value) => Number.isFinite(value) && value > 0);
    if (!values.length) {
      const some = rows.sorted().some((row) => number(row.epsilon_truncate_refined) === 0);
      this.empty(some ? "Epsilon is 0 at these caps: there is nothing to draw." : "No finite epsilon is known at these caps.");
      return;
    }
    const caps = rows.sorted().map((row) => row.max_batch_size);
    const low = Math.min(...values);
    const attack = `epsilon_${note.overflow}_attack`;
    // The attack is computed at some of the caps only, by design: what lies between them is filled once all of those are there.
    const dots = rows.known(attack);
    const band = complete ? between(dots, rows.known(`epsilon_${note.overflow}_refined`)) : [];
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
        ...lines.map((line) => ({ type: "line", points: rows.points(line.name), cls: line.cls })),
        { type: complete ? "line" : "dots", points: dots, cls: "s-attack", dots: true },
        { type: "vertical", x: note.max_batch_size, label: `B = ${whole(note.max_batch_size)}` },
      ],
      cursor: caps,
    });
    const at = (name, round) => (x) => {
      const row = rows.map.get(x ?? note.max_batch_size);
      return row && name in row ? round(number(row[name])) : "";
    };
    this.explain([
      { kind: "line", cls: "s-free", label: "no cap", word: "no cap", value: () => up(free) },
      ...lines.map((line) => ({ kind: "line", cls: line.cls, label: line.label, word: line.word, value: at(line.name, up) })),
      { kind: "area", cls: policyClass(note.overflow), label: `truth for ${note.overflow}` },
      { kind: "line", cls: "s-attack", label: "best known attack", word: "attack", value: at(attack, down) },
    ]);
    this.about = note.about;
  }

  read(x) {
    super.read(x);
    const at = x === null || x === undefined ? "Values at your B; point at the picture, or use the arrow keys on it, for others." : `Values at B = ${whole(x)}.`;
    this.reading.textContent = at + (this.current ? compared(this.current.note) : "");
  }

  columns() {
    const columns = super.columns();
    return { ...columns, epsilon_no_cap: columns.max_batch_size.map(() => this.answered.result.marks.no_cap) };
  }
}
