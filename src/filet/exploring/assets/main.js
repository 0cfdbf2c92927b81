// The page: fields change the state, the state asks the server, and each view shows what comes.

import { Conversation } from "./api.js";
import { BatchSizes, Utilization } from "./batches.js";
import { Comparison, EpsilonCap } from "./epsilons.js";
import { element } from "./elements.js";
import { Fields } from "./fields.js";
import { down, exact, percent, text, up, whole } from "./format.js";
import { Planner } from "./plan.js";
import { Profile, Risk, TradeOff } from "./promises.js";
import { recipes } from "./reproduce.js";
import { START, State } from "./state.js";

const $ = (id) => document.getElementById(id);
const [presets, choices] = await Promise.all(["presets.json", "choices.json"].map(async (name) => (await fetch(name)).json()));
const state = new State({ ...presets[0].run, ...State.fromHash(location.hash) });
const known = { noise: null, epsilon: null, attack: null, marks: null }; // what has been computed for the state
const timers = {};
let planWanted = false; // as soon as epsilon is known

const views = $("views");
const sizes = new BatchSizes(views);
const comparison = new Comparison(views);
const caps = new EpsilonCap(views);
const rows = new Utilization(views);
const profile = new Profile(views);
const attacker = new TradeOff(views);
const person = new Risk(views);

const handlers = (card) => ({
  begin: (given, note) => card.begin(given, note),
  part: (part, note) => card.part?.(part, note),
  answer: (answer, note) => card.answer(answer, note),
  refusal: (error) => card.refusal(error),
  renoted: () => card.drawn && card.show?.(),
});
const talks = {
  compare: new Conversation("compare", handlers(comparison)),
  "epsilon-cap": new Conversation("epsilon-cap", handlers(caps)),
  utilization: new Conversation("utilization", handlers(rows)),
  "delta-epsilon": new Conversation("delta-epsilon", handlers(profile)),
  "trade-off": new Conversation("trade-off", handlers(attacker)),
  risk: new Conversation("risk", handlers(person)),
};
const sizesTalk = new Conversation("batch-sizes", {
  begin: () => sizes.begin(),
  answer(answer, note) {
    known.marks = answer.result.marks;
    sizes.answer(answer, note);
    if (outdated(note)) sizes.begin();
    facts();
  },
  refusal: refuse,
  hurried: false,
});
const now = new Conversation("epsilon", {
  begin: () => ($("now").dataset.state = "waiting"),
  part: (part, note) => spent(part, part.holds_for, note),
  answer: (answer, note) => spent(answer.result, answer.inputs.guarantee.holds_for, note),
  refusal: refuse,
  hurried: false,
});
const noise = new Conversation("calibrate", {
  begin: () => ($("now").dataset.state = "waiting"),
  answer(answer) {
    known.noise = answer.result.noise_multiplier;
    known.target = answer.inputs.epsilon;
    fields.accept();
    $("refusal").hidden = true;
    account(false);
  },
  refusal: refuse,
});

const fields = new Fields($("fields"), state, choices, () => changed(), (pair, name) => {
  state.exchange(pair, name, { noise_multiplier: known.noise && Number(up(known.noise, 5)), epsilon: known.epsilon && Number(up(known.epsilon, 4).replaceAll(",", "")) });
  fields.update();
  changed();
});
const planner = new Planner($("planning"), (option) => {
  state.load({
    dataset_size: option.dataset_size, sampling_probability: option.sampling_probability, max_batch_size: option.max_batch_size,
    size: option.size ?? START.size, overflow: option.overflow, noise_multiplier: option.noise_multiplier, steps: option.steps,
  });
  fields.update();
  changed();
  $("announce").textContent = `The fields show option ${option.name} now.`;
}, () => (planWanted = false));

/** After a pause, at most once in a while: what is under way goes on until then. */
function later(name, pause, action) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(action, pause);
}

/** The address of the page says what its fields say. */
function writeAddress() {
  history.replaceState(null, "", state.toHash());
}

/** Something has been moved or typed. */
function changed() {
  later("url", 150, writeAddress);
  const run = state.run();
  marked();
  noise.stop(); // what is under way is about an older run, and must not answer for this one
  if (state.use.goal === "epsilon") {
    if (known.noise > 0) account(true);
    later("noise", 60, () => noise.ask(run));
  } else {
    clearTimeout(timers.noise);
    known.noise = run.noise_multiplier;
    account(false);
  }
}

/** The run with its noise: what the target takes, or while that is sought, about that. */
function priced(rough) {
  const { epsilon, ...run } = state.run();
  if (epsilon === undefined) return run;
  let guess = known.noise;
  // Epsilon falls about as the 1.3rd power of the noise: near enough for a first look, whose epsilon is certified like any other.
  if (rough && known.noise > 0 && known.target > 0 && epsilon > 0) guess = Number((known.noise * (known.target / epsilon) ** (1 / 1.3)).toPrecision(4));
  return { ...run, noise_multiplier: typeof guess === "number" ? guess : 1 };
}

/** Ask for everything that the run and its noise decide: the point at once, curves soon, what takes long after a pause. */
function account(rough) {
  const run = priced(rough);
  const note = noted(run, rough);
  now.ask(run, note);
  const { noise_multiplier: _, ...scheme } = run;
  sizesTalk.ask(scheme, note);
  const ask = () => {
    const { overflow, size, ...both } = run; // every policy, which only a public size has
    talks.compare.ask(both, note);
    talks["epsilon-cap"].ask(both, note);
    talks["delta-epsilon"].ask(run, note);
  };
  // While a slider moves, curves restart every tenth of a second, so that they move too.
  if (!timers.curves) timers.curves = setTimeout(() => { timers.curves = null; latest(); }, 90);
  latest = ask;
  later("slow", 350, () => {
    talks["trade-off"].ask(run, note);
    talks.risk.ask(run, note);
    usage();
  });
}
let latest = () => {};

/** What a view has to know of the run that it shows. */
function noted(run, rough) {
  const words = Object.entries(run).map(([name, value]) => `${name} ${exact(value)}`);
  return { dataset_size: run.dataset_size, size: run.size, overflow: run.overflow, max_batch_size: run.max_batch_size, delta: run.delta, about: words.join(", "), rough, fields: JSON.stringify(state.run()) };
}

/** True of an answer that came after the fields had changed again: it is shown, but as an old one. */
const outdated = (note) => note.fields !== JSON.stringify(state.run());

/** Utilization is drawn at one epsilon: the target, or what the run costs. */
function usage() {
  const epsilon = state.use.goal === "epsilon" ? state.number("epsilon") : Number.isFinite(known.epsilon) ? Number(up(known.epsilon, 5).replaceAll(",", "")) : NaN;
  if (!(epsilon > 0)) {
    talks.utilization.stop();
    rows.empty(known.epsilon === 0 ? "This run loses nothing, so that any noise would do." : "This view compares runs of one epsilon; there is no finite one here.");
    return;
  }
  const run = priced(false);
  const { noise_multiplier: _, ...rest } = run;
  talks.utilization.ask({ ...rest, epsilon }, noted(run, false));
}

/** An epsilon has come, and for which numbers of records it holds. */
function spent(result, holdsFor, note) {
  const value = result.epsilon === "inf" ? Infinity : result.epsilon;
  const current = !note.rough && !outdated(note);
  if (current) {
    fields.accept(); // a first look at a target says nothing of whether it can be met, nor does an old answer
    $("refusal").hidden = true;
  }
  $("now").dataset.state = note.rough ? "rough" : current ? "whole" : "waiting";
  known.attack = result.attack_epsilon;
  if (known.epsilon !== value) {
    known.epsilon = value;
    later("usage", 350, usage);
  }
  $("epsilon-value").textContent = up(value);
  $("epsilon-words").textContent = `at delta ${exact(note.delta)}, ${state.values.adjacency}, ${note.overflow}; for ${holdsFor}`;
  warn(note);
  facts();
  reproduce();
  if (current && planWanted) {
    planWanted = false;
    planner.ask(planQuestion());
  } else if (current) planner.outdate(planQuestion());
  later("announce", 900, () => ($("announce").textContent = `Epsilon is at most ${up(value)}.`));
}

/** A delta that is too large to mean much is answered with a notice, as at the prompt. */
function warn({ delta, dataset_size }) {
  const large = delta * dataset_size > 1;
  $("delta-notice").hidden = !large;
  $("delta-notice").textContent = large ? `Delta ${exact(delta)} is above 1 / dataset size = ${down(1 / dataset_size, 2)}: publishing some examples as they are would pass. Choose a smaller delta.` : "";
}

/** Small numbers beside the large one. */
function facts() {
  const { marks, attack, noise: sigma } = known;
  const shown = {
    "fact-attack": attack === null || attack === undefined ? "\u2026" : `\u2265 ${down(attack === "inf" ? Infinity : attack)}`,
    "fact-noise": typeof sigma === "number" ? (state.use.goal === "epsilon" ? up(sigma, 4) : exact(sigma)) : "\u2013",
    "fact-rows": marks ? percent(marks.utilization) : "\u2013",
    "fact-waste": marks ? `${text(marks.max_batch_size - marks.expected_batch_size, 3)} of ${whole(marks.max_batch_size)} rows are padding` : "",
    "fact-overflow": marks ? percent(marks.overflow_probability, 2) : "\u2013",
    "fact-example": marks && typeof sigma === "number" ? up(sigma / marks.expected_batch_size, 3) : "\u2013",
  };
  for (const [id, words] of Object.entries(shown)) $(id).textContent = words;
}

/** The library has refused: its own words stand at the field they are about. */
function refuse(error) {
  $("now").dataset.state = "refused";
  const placed = fields.refuse(error.message, error.field);
  $("refusal").hidden = placed;
  if (!placed) $("refusal").textContent = error.message;
  if (known.epsilon === null) $("epsilon-words").textContent = "not computed: a value has to be mended first";
  for (const talk of [now, ...Object.values(talks)]) talk.stop();
  for (const name of ["curves", "slow", "usage"]) clearTimeout(timers[name]);
  timers.curves = null;
  if (planWanted) {
    planWanted = false;
    planner.stop("not planned: a value has to be mended first");
  }
}

function reproduce() {
  const texts = recipes(state.run(), known.noise);
  for (const [name, words] of Object.entries(texts)) $(`recipe-${name}`).textContent = words;
}

function planQuestion() {
  const epsilon = state.use.goal === "epsilon" ? state.number("epsilon") : Number(up(known.epsilon, 4).replaceAll(",", ""));
  const steps = state.steps();
  return { dataset_size: state.number("dataset_size"), epsilon, delta: state.number("delta"), adjacency: state.values.adjacency, max_batch_size: state.number("max_batch_size"), steps };
}

/** Which preset the fields show, if any. */
function marked() {
  const run = JSON.stringify(state.run());
  for (const button of $("presets").querySelectorAll("button")) {
    const preset = presets.find((one) => one.id === button.dataset.id);
    const other = new State(preset.run);
    other.load(Object.fromEntries(Object.keys(choices).map((name) => [name, state.values[name]])));
    button.setAttribute("aria-pressed", String(JSON.stringify(other.run()) === run));
  }
}

for (const preset of presets) {
  const button = element("button", { type: "button", "data-id": preset.id, title: preset.about, "aria-pressed": "false" }, preset.name);
  button.addEventListener("click", () => {
    state.load(preset.run);
    fields.update();
    changed();
    $("announce").textContent = `${preset.name}: ${preset.about}.`;
  });
  $("presets").append(button);
}
$("plan").addEventListener("click", () => {
  // The plan is for the epsilon that the fields give. If that is still being computed, an older one must not take its place.
  const now = $("now").dataset.state;
  planWanted = state.use.goal !== "epsilon" && now !== "whole" && now !== "refused";
  if (now === "refused") planner.stop("not planned: a value has to be mended first");
  else if (planWanted) planner.wait();
  else planner.ask(planQuestion());
});
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    writeAddress(); // it may still wait for a pause in the typing
    const words = button.dataset.copy === "url" ? location.href : $(button.dataset.copy).textContent;
    const said = await navigator.clipboard.writeText(words).then(() => "copied", () => "cannot copy; select the text");
    const before = button.dataset.label ?? (button.dataset.label = button.textContent);
    button.textContent = said;
    later(button.dataset.copy, 1500, () => (button.textContent = before));
  });
}
const tabs = [...document.querySelectorAll("[role=tab]")];
const open = (tab, focus) => {
  for (const one of tabs) {
    one.setAttribute("aria-selected", String(one === tab));
    one.tabIndex = one === tab ? 0 : -1;
    $(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
  if (focus) tab.focus();
};
for (const tab of tabs) {
  tab.addEventListener("click", () => open(tab, false));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) open(tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length], true);
  });
}
window.addEventListener("hashchange", () => {
  const run = State.fromHash(location.hash);
  if (!run || location.hash === state.toHash()) return;
  state.load(run);
  fields.update();
  changed();
});

changed();
document.documentElement.dataset.ready = "true";
