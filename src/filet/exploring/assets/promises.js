// What one run promises: delta at every epsilon, and the power that is left to attacks.

import { Card, FillingCard, extent, policyClass } from "./cards.js";
import { down, number, percent, percentDown, percentUp, text, up } from "./format.js";

/** Delta as a function of epsilon. */
export class Profile extends FillingCard {
  constructor(container) {
    super(container, {
      id: "delta-epsilon",
      title: "Delta at every epsilon",
      page: "accounting.html",
      caption: "One run keeps many promises at once. Every point on the line is one: epsilon across, and the delta with which it may fail upwards. The band reaches down to what an attacker with knowledge of everyone else's data achieves.",
    });
    this.column = "delta";
  }

  part(part) {
    if ("deltas" in part) this.coming.rows.expect(part.deltas);
    else this.coming.rows.merge(part);
    this.grown(this.coming.rows.known("epsilon_upper").length >= 3);
  }

  show() {
    const { rows, note } = this.current;
    const all = rows.sorted().map((row) => ({ delta: row.delta, upper: number(row.epsilon_upper), attack: number(row.epsilon_attack) }));
    const points = all.filter((one) => Number.isFinite(one.upper));
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
        ...(this.current.whole ? [{ type: "polygon", points: [...points.map((one) => [one.upper, one.delta]), ...points.map((one) => [one.attack, one.delta]).reverse()], cls }] : []),
        { type: "line", points: all.map((one) => [one.attack, one.delta]), cls: "s-attack" },
        { type: "line", points: all.map((one) => [one.upper, one.delta]), cls },
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
}

/** What the run means for one person: the belief of an attacker before and after it. */
export class Risk extends Card {
  constructor(container) {
    super(container, {
      id: "risk",
      title: "What it means for one person",
      page: "meaning.html",
      caption: "An attacker who knows everyone else's data believes with some certainty that one example was used (across). Having seen the whole training, that belief is at most the line (upwards), but for outputs of chance delta. The dotted line is a run that tells nothing. All figures hold for every attack there is.",
      wide: true,
    });
  }

  answer(answer, note) {
    this.answered = answer;
    this.about = note.about;
    const { columns, risk } = answer.result;
    const { prior, belief } = columns;
    const cls = policyClass(note.overflow);
    this.images[0].show({
      id: this.id,
      label: "Line chart: largest belief of an attacker after the run against the belief before it",
      x: { label: "belief before, in percent", range: [0, 1], format: (value) => text(100 * value, 3) },
      y: { label: "belief after, at most, in percent", range: [0, 1], format: (value) => text(100 * value, 3) },
      layers: [
        { type: "line", points: prior.map((one) => [one, one]), cls: "s-guess" },
        { type: "line", points: prior.map((one, i) => [one, belief[i]]), cls },
      ],
      cursor: prior,
    });
    const usual = prior.includes(0.5) ? 0.5 : prior[0];
    const error = risk.bayes_errors.find((one) => one.prior === 0.5);
    this.explain([
      { kind: "line", cls, label: "belief after, at most", value: (x) => percentUp(belief[prior.indexOf(x ?? usual)]) },
      { kind: "line", cls: "s-guess", label: "belief before", value: (x) => percent(x ?? usual) },
      { label: "membership advantage, at most", value: () => percentUp(risk.membership_advantage) },
      ...risk.true_positive_rates.map((one) => ({
        label: `members found when ${percent(one.false_positive_rate, 2)} of others are accused, at most`, value: () => percentUp(one.true_positive_rate),
      })),
      { label: "wrong guesses of a fair coin, at least", value: () => percentDown(error.bayes_error) },
    ]);
    this.reading.textContent = `Of 100 members an attack accuses at most ${up(100 * risk.membership_advantage, 3)} more than of 100 others.`;
    this.fresh(true);
  }

  columns() {
    const { risk } = this.answered.result;
    const columns = super.columns();
    const rates = risk.true_positive_rates.map((one) => [`true_positive_rate_at_${one.false_positive_rate}`, one.true_positive_rate]);
    const errors = risk.bayes_errors.map((one) => [`bayes_error_at_${one.prior}`, one.bayes_error]);
    for (const [name, value] of [["membership_advantage", risk.membership_advantage], ...rates, ...errors]) columns[name] = columns.prior.map(() => value);
    return columns;
  }
}

/** The power of membership attacks. */
export class TradeOff extends Card {
  constructor(container) {
    super(container, {
      id: "trade-off",
      title: "What an attacker finds out",
      page: "accounting.html#the-trade-off-curve",
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
}
