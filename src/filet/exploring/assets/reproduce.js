// The same run elsewhere: as a command, as Python lines, and as a run file.

import { exact } from "./format.js";

const option = (name) => `--${name.replaceAll("_", "-")}`;

function command(run) {
  const seeks = "epsilon" in run;
  const words = Object.entries(run).map(([name, value]) => `${option(name)} ${exact(value)}`);
  return [seeks ? "filet calibrate noise-multiplier" : "filet epsilon", ...words].join(" \\\n    ");
}

const literal = (value) => (typeof value === "number" ? exact(value) : JSON.stringify(value));
const list = (names, run) => names.filter((name) => name in run).map((name) => `${name}=${literal(run[name])}`).join(", ");

function python(run) {
  const scheme = ["dataset_size", "poisson_batch_size", "sampling_probability", "max_batch_size", "overflow", "size"];
  const maker = "poisson_batch_size" in run ? "filet.CappedPoisson.from_batch_size" : "filet.CappedPoisson";
  const lines = ["import filet", "", `scheme = ${maker}(${list(scheme, run)})`];
  if ("epochs" in run) lines.push(`steps = scheme.steps_of_epochs(${literal(run.epochs)})`);
  const steps = "epochs" in run ? "steps=steps" : list(["steps"], run);
  if ("epsilon" in run) {
    lines.push(
      `noise = filet.calibrate_noise_multiplier(scheme, ${steps}, ${list(["epsilon", "delta", "adjacency"], run)})`,
      `curve = filet.account(scheme, noise_multiplier=noise, ${steps}, ${list(["adjacency"], run)})`,
      `print(noise, curve.epsilon(${list(["delta"], run)}))`,
    );
  } else {
    lines.push(
      `curve = filet.account(scheme, ${list(["noise_multiplier"], run)}, ${steps}, ${list(["adjacency"], run)})`,
      `print(curve.epsilon(${list(["delta"], run)}))`,
    );
  }
  return lines.join("\n");
}

function runFile(run, noise) {
  const keys = { ...run };
  const lines = [];
  if ("epsilon" in keys) {
    lines.push(`max_epsilon = ${literal(keys.epsilon)}`);
    keys.noise_multiplier = noise;
    delete keys.epsilon;
  }
  lines.push(...Object.entries(keys).map(([name, value]) => `${name} = ${literal(value)}`));
  return `${lines.join("\n")}\n`;
}

/** Text for each tab; `noise` is what the target takes, known once it has been found. */
export function recipes(run, noise) {
  return { command: command(run), python: python(run), file: runFile(run, noise) };
}
