// What one run promises: delta at every epsilon, and the power that is left to attacks.

import { Card, FillingCard, extent, policyClass, Rows } from "./cards.js";
import { down, number, percent, percentDown, percentUp, text, up } from "./format.js";

/** Delta as a function of epsilon. */
export class Profile extends FillingCard {
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
    this.grown(this.coming.rows.map.size >= 3);
  }

  show() {
    const { rows, note } = this.current;
    const points = rows.sorted().map((row) => ({ delta: row.delta, upper: number(row.epsilon_upper), attack: number(row.epsilon_attack) })).filter((one) => Number.isFinite(one.upper));
    if (!points.length) {
      this.empty("No finite epsilon is proven at these deltas.");
      return;
    }
    this.reading.textContent = "";
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
      title: "What an attacker finds out",
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
