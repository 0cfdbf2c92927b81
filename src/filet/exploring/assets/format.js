// Numbers as people read them. Upper bounds are rounded up and lower bounds down, as everywhere in filet.

const MINUS = "\u2212";

function rounded(value, digits, up) {
  if (value === "inf" || value === Infinity) return "\u221e";
  if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
  if (value === 0) return "0";
  let shown = Number(value.toPrecision(digits));
  const last = 10 ** (Math.floor(Math.log10(Math.abs(value))) - digits + 1);
  if (up && shown < value) shown += last;
  if (!up && shown > value) shown -= last;
  return text(Number(shown.toPrecision(digits + 1)), digits);
}

/** At least the value, with so many significant digits. */
export const up = (value, digits = 4) => rounded(value, digits, true);

/** At most the value. */
export const down = (value, digits = 4) => rounded(value, digits, false);

/** A decimal number with the zeros at its end that make up so many significant digits, as columns of a table need. */
export function padded(shown, digits) {
  if (!/^\d+(\.\d+)?$/.test(shown)) return shown;
  const lacking = digits - shown.replace(".", "").replace(/^0+/, "").length;
  return lacking > 0 ? `${shown}${shown.includes(".") ? "" : "."}${"0".repeat(lacking)}` : shown;
}

/** About the value: for axes and facts that no guarantee rests on. */
export function text(value, digits = 4) {
  if (value === "inf" || value === Infinity) return "\u221e";
  if (value === null || value === undefined || Number.isNaN(value)) return "\u2013";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) {
    const [mantissa, exponent] = value.toExponential(Math.max(digits - 1, 0)).split("e");
    return `${Number(mantissa)}e${exponent.replace("+", "").replace("-", MINUS)}`;
  }
  const shown = Number(value.toPrecision(Math.max(digits, 1)));
  return size >= 1e4 ? Math.round(value).toLocaleString("en-US") : String(shown).replace("-", MINUS);
}

/** Whole numbers with separators. */
export const whole = (value) => Math.round(value).toLocaleString("en-US");

export const percent = (share, digits = 3) => `${text(100 * share, digits)} %`;

/** A share from above, and from below. */
export const percentUp = (share, digits = 3) => `${up(100 * share, digits)} %`;
export const percentDown = (share, digits = 3) => `${down(100 * share, digits)} %`;

/** What a text field means: a number where it is one, else the text itself, for the library to explain. */
export function parsed(field) {
  const plain = field.trim().replace(/[\s_,]/g, "");
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) && Number.isFinite(Number(plain)) ? Number(plain) : field.trim();
}

/** A number as every reader of the command, the Python lines and the run file understands it. */
export function exact(value) {
  if (typeof value !== "number") return String(value);
  return Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential() : String(value);
}

/** Infinity comes as a string, since JSON has no number for it. */
export const number = (value) => (value === "inf" ? Infinity : value === null || value === undefined ? NaN : Number(value));
