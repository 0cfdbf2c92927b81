// Pictures and numbers as files, made in the page: nothing is sent anywhere.

import { shape } from "./chart.js";

const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-opacity", "opacity",
  "font-family", "font-size", "font-weight", "visibility"];

function save(name, blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** A copy of an element that looks the same without the page's style sheet. */
function standalone(element) {
  const copy = element.cloneNode(true);
  const originals = [element, ...element.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((one, i) => {
    const style = getComputedStyle(originals[i]);
    for (const look of LOOKS) {
      const value = style.getPropertyValue(look);
      if (value) one.setAttribute(look, value);
    }
    one.removeAttribute("class");
    one.removeAttribute("tabindex");
  });
  return copy;
}

/** One SVG: the title, the legend, every picture of the view, and what was assumed. */
export function poster(view) {
  const svgs = view.pictures();
  const ink = getComputedStyle(document.body);
  const font = { "font-family": "system-ui, sans-serif", fill: ink.color };
  const width = Math.max(...svgs.map((svg) => Number(svg.getAttribute("width")))) + 32;
  const parts = [shape("text", { x: 16, y: 28, "font-size": 16, "font-weight": 600, ...font }, view.title)];
  let top = 44;
  for (const entry of view.legend()) {
    const swatch = standalone(entry.swatch);
    swatch.setAttribute("x", 16);
    swatch.setAttribute("y", top);
    parts.push(swatch, shape("text", { x: 50, y: top + 11, "font-size": 12, ...font }, entry.text));
    top += 18;
  }
  top += 6;
  for (const svg of svgs) {
    const copy = standalone(svg);
    copy.setAttribute("x", 16);
    copy.setAttribute("y", top);
    parts.push(copy);
    top += Number(svg.getAttribute("height")) + 4;
  }
  for (const line of wrapped(view.assumptions(), Math.floor((width - 32) / 5.6))) {
    parts.push(shape("text", { x: 16, y: top + 12, "font-size": 11, ...font, "fill-opacity": 0.75 }, line));
    top += 15;
  }
  const height = top + 12;
  const paper = shape("rect", { width, height, fill: ink.backgroundColor });
  return shape("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` }, paper, ...parts);
}

function wrapped(words, length) {
  const lines = [""];
  for (const word of words.split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= length) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines;
}

function cell(value) {
  if (value === null || value === undefined) return "";
  return /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value);
}

/** Named columns as comma-separated text. */
export function csv(columns) {
  const names = Object.keys(columns);
  const rows = columns[names[0]].map((_, i) => names.map((name) => cell(columns[name][i])).join(","));
  return `${[names.join(","), ...rows].join("\n")}\n`;
}

async function png(svg) {
  const source = new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
  const address = URL.createObjectURL(source);
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Save a view in one of the four forms. */
export async function download(view, form) {
  const name = `filet-${view.id}.${form}`;
  if (form === "json") save(name, new Blob([`${JSON.stringify(view.data(), null, 2)}\n`], { type: "application/json" }));
  if (form === "csv") save(name, new Blob([csv(view.columns())], { type: "text/csv" }));
  if (form === "svg") save(name, new Blob([new XMLSerializer().serializeToString(poster(view))], { type: "image/svg+xml" }));
  if (form === "png") save(name, await png(poster(view)));
}
