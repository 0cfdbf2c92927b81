// The plan: a button, its progress, and a table whose rows can be chosen.

import { Conversation } from "./api.js";
import { element } from "./elements.js";
import { down, exact, padded, percent, up, whole } from "./format.js";

const HEADER = ["option", "mean draw", "probability", "noise", "rows in use", "overflows", "noise per example", "\u00d7 ideal", "epsilon", ""];
const OUT_OF_REACH = { ideal: "no sampler can", microbatches: "no fixed shape" };

export class Planner {
  constructor(root, onChoose, onStop) {
    this.button = root.querySelector("#plan");
    this.stopping = root.querySelector("#plan-stop");
    this.bar = root.querySelector("#plan-progress");
    this.status = root.querySelector("#plan-status");
    this.table = root.querySelector("#plan-table");
    Object.assign(this, { onChoose, onStop });
    this.talk = new Conversation("plan", {
      begin: () => this.busy(true, "starting"),
      part: ({ share, label }) => this.progress(share, label),
      answer: (answer) => this.show(answer),
      refusal: (error) => this.busy(false, error.message),
    });
    this.stopping.addEventListener("click", () => {
      this.stop("stopped");
      this.onStop();
    });
  }

  /** Ask for the plan of a target at the given hardware. */
  ask(given) {
    this.given = JSON.stringify(given);
    this.talk.stop();
    this.talk.ask(given);
  }

  /** Epsilon is still being computed, and with it what to ask. */
  wait() {
    this.talk.stop();
    this.given = null;
    this.busy(true, "waiting for epsilon");
  }

  stop(message) {
    this.talk.stop();
    this.busy(false, message);
  }

  /** The run has changed: what the table says is about another one. */
  outdate(given) {
    if (!this.given || JSON.stringify(given) === this.given) return;
    this.table.dataset.state = "old";
    if (this.talk.current) this.stop("stopped, as the run has changed");
    else if (!this.table.hidden) this.status.textContent = "The run has changed since; plan again for the new one.";
  }

  busy(is, message) {
    const focused = document.activeElement;
    this.bar.hidden = this.stopping.hidden = !is;
    this.button.disabled = is;
    if (is) this.bar.value = 0;
    if (is && focused === this.button) this.stopping.focus();
    if (!is && focused === this.stopping) this.button.focus();
    this.status.textContent = message;
  }

  progress(share, label) {
    this.bar.value = share;
    this.status.textContent = `${percent(share, 2)}: ${label}`;
  }

  show({ inputs, result }) {
    const best = result.options[result.best];
    this.busy(false, `Least noisy with fixed shapes: ${best.name}, ${percent(best.utilization)} of the rows in use.`);
    const head = element("thead", {}, element("tr", {}, ...HEADER.map((name, i) => (i === HEADER.length - 1 ? element("td", {}) : element("th", { scope: "col" }, name)))));
    const body = element("tbody", {}, ...result.options.map((option, i) => this.row(option, i === result.best)));
    const title = element("caption", {}, element("span", {}, `Options at epsilon ${exact(inputs.epsilon)}, delta ${exact(inputs.delta)}, ${inputs.adjacency}: ${whole(best.max_batch_size)} rows, ${whole(best.steps)} steps`));
    this.table.replaceChildren(title, head, body);
    this.table.hidden = false;
    this.table.dataset.state = "new";
  }

  row(option, best) {
    const figures = [
      padded(down(option.sampling_probability * option.dataset_size, 4), 4), padded(down(option.sampling_probability, 4), 4), padded(up(option.noise_multiplier, 4), 4), percent(option.utilization),
      percent(option.overflow_probability, 2), padded(up(option.effective_noise, 3), 3), padded(up(option.ratio_to_ideal, 3), 3), padded(up(option.epsilon, 4), 4),
    ];
    const button = element("button", { type: "button", "aria-label": `Use ${option.name}` }, "use");
    button.addEventListener("click", () => this.onChoose(option));
    const last = OUT_OF_REACH[option.name] ? element("span", { class: "hint" }, OUT_OF_REACH[option.name]) : button;
    const name = element("th", { scope: "row" }, option.name, ...(best ? [" ", element("em", {}, "best")] : []), element("small", {}, option.description));
    return element("tr", best ? { class: "best" } : {}, name, ...figures.map((figure) => element("td", {}, figure)), element("td", {}, last));
  }
}
