// A small plotting library: one SVG for the screen and for the download. Colours come from classes in style.css.

import { text } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes and children. */
export function shape(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** From data to pixels; `log` scales take positive numbers only. */
export function scale([low, high], [from, to], log) {
  const at = log ? (value) => Math.log(Math.max(value, low * 1e-9)) : (value) => value; // zero lies far below a logarithmic picture
  const span = at(high) - at(low) || 1;
  return Object.assign((value) => from + ((at(value) - at(low)) / span) * (to - from), { low, high, log });
}

/** Round numbers within a range: about `count` of them. */
export function ticks([low, high], log, count = 5) {
  if (log) return logTicks(low, high, count);
  const rough = (high - low) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * unit >= rough * 0.999) * unit;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

function logTicks(low, high, count) {
  const decades = Math.log10(high / low);
  if (decades < 0.7) return ticks([low, high], false, count);
  const factors = decades > 2.5 ? [1] : decades > 1.4 ? [1, 3] : [1, 2, 3, 5, 7];
  const every = Math.max(1, Math.ceil(decades / (count + 1)));
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    if (factors.length === 1 && power % every) continue;
    for (const factor of factors) {
      const value = Number(`${factor}e${power}`);
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

const finite = ([x, ...ys]) => Number.isFinite(x) && ys.every(Number.isFinite);
const path = (points, x, y) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(2)} ${y(b).toFixed(2)}`).join("");

/** Pieces of a line between points that have no value. */
function pieces(points) {
  const found = [[]];
  for (const point of points) {
    if (finite(point)) found.at(-1).push(point);
    else if (found.at(-1).length) found.push([]);
  }
  return found.filter((piece) => piece.length);
}

const LAYERS = {
  area(layer, x, y) {
    return pieces(layer.points).map((piece) => {
      const back = [...piece].reverse();
      const rim = `${path(piece.map(([a, , high]) => [a, high]), x, y)}${path(back.map(([a, low]) => [a, low]), x, y).replace("M", "L")}Z`;
      return shape("path", { d: rim, class: `area ${layer.cls}` });
    });
  },
  line(layer, x, y) {
    return pieces(layer.points).flatMap((piece) => [
      ...(piece.length > 1 ? [shape("path", { d: path(piece, x, y), class: `line ${layer.cls}` })] : []),
      ...(piece.length === 1 || layer.dots ? LAYERS.dots({ ...layer, points: piece }, x, y) : []),
    ]);
  },
  dots(layer, x, y) {
    return layer.points.filter(finite).map(([a, b]) => shape("circle", { cx: x(a), cy: y(b), r: 2, class: `dot ${layer.cls}` }));
  },
  polygon(layer, x, y) {
    const points = layer.points.filter(finite);
    return points.length > 2 ? [shape("path", { d: `${path(points, x, y)}Z`, class: `area ${layer.cls}` })] : [];
  },
  bar(layer, x, y, box) {
    const top = Math.max(box.top, y(layer.y));
    return [shape("rect", { x: x(layer.x) - 2, y: top, width: 4, height: Math.max(0, box.bottom - top), class: `bar ${layer.cls}` })];
  },
  span(layer, x, y, box) {
    const [from, to] = [Math.max(box.left, x(layer.from)), Math.min(box.right, x(layer.to))];
    if (to <= from) return [];
    return [shape("rect", { x: from, y: box.top, width: to - from, height: box.bottom - box.top, class: `span ${layer.cls}` })];
  },
  vertical(layer, x, y, box) {
    const at = x(layer.x);
    if (!(at >= box.left - 1 && at <= box.right + 1)) return [];
    const end = at > box.right - 70;
    const label = shape("text", { x: at + (end ? -5 : 5), y: layer.low ? box.bottom - 7 : box.top + 11, class: "mark", "text-anchor": end ? "end" : "start" }, layer.label ?? "");
    return [shape("line", { x1: at, x2: at, y1: box.top, y2: box.bottom, class: `vertical ${layer.cls ?? ""}` }), label];
  },
  horizontal(layer, x, y, box) {
    const at = y(layer.y);
    if (!(at >= box.top && at <= box.bottom)) return [];
    return [shape("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: `horizontal ${layer.cls ?? ""}` })];
  },
  point(layer, x, y) {
    if (!finite([layer.x, layer.y])) return [];
    const [cx, cy] = [x(layer.x), y(layer.y)];
    if (layer.shape === "star") return [shape("path", { d: star(cx, cy, 8), class: `point ${layer.cls}` })];
    return [shape("circle", { cx, cy, r: 5, class: `point ${layer.cls}` })];
  },
};

function star(cx, cy, size) {
  const corners = Array.from({ length: 10 }, (_, i) => {
    const r = i % 2 ? size * 0.45 : size;
    const turn = (Math.PI * i) / 5 - Math.PI / 2;
    return `${(cx + r * Math.cos(turn)).toFixed(2)} ${(cy + r * Math.sin(turn)).toFixed(2)}`;
  });
  return `M${corners.join("L")}Z`;
}

/** Draw a picture: axes, then layers in their order. Returns the scale of x. */
export function draw(svg, spec, width) {
  const height = spec.height ?? 260;
  const box = { left: spec.left ?? 50, right: width - 14, top: 26, bottom: height - 42 };
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const x = scale(spec.x.range, [box.left, box.right], spec.x.log);
  const y = scale(spec.y.range, [box.bottom, box.top], spec.y.log);
  const inside = `clip-${spec.id}`;
  const clip = shape("clipPath", { id: inside }, shape("rect", { x: box.left, y: box.top - 6, width: box.right - box.left, height: box.bottom - box.top + 6 }));
  const content = shape("g", { "clip-path": `url(#${inside})` });
  for (const layer of spec.layers) content.append(...LAYERS[layer.type](layer, x, y, box));
  svg.replaceChildren(shape("defs", {}, clip), axes(spec, x, y, box), content, shape("g", { class: "cursor" }));
  return { x, y, box };
}

function axes(spec, x, y, box) {
  const group = shape("g", { class: "axes" });
  const show = (axis, value) => (axis.format ?? ((one) => text(one, 3)))(value);
  const room = Math.max(4, Math.round((box.right - box.left) / 85));
  for (const value of ticks(spec.y.range, spec.y.log, 4)) {
    group.append(
      shape("line", { x1: box.left, x2: box.right, y1: y(value), y2: y(value), class: "grid" }),
      shape("text", { x: box.left - 7, y: y(value) + 4, "text-anchor": "end" }, show(spec.y, value)),
    );
  }
  for (const value of ticks(spec.x.range, spec.x.log, room)) {
    group.append(shape("text", { x: x(value), y: box.bottom + 17, "text-anchor": "middle" }, show(spec.x, value)));
  }
  group.append(
    shape("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }),
    shape("text", { x: 2, y: 12, class: "label" }, spec.y.label),
    shape("text", { x: (box.left + box.right) / 2, y: box.bottom + 35, "text-anchor": "middle", class: "label" }, spec.x.label),
  );
  return group;
}

/** A picture in the page: redrawn on resize, with a cursor for pointer and arrow keys that reads values off. */
export class Picture {
  constructor(figure, onCursor) {
    this.svg = shape("svg", { role: "img", tabindex: 0, class: "chart" });
    figure.append(this.svg);
    this.figure = figure;
    this.onCursor = onCursor;
    this.place = null;
    new ResizeObserver(() => this.redraw()).observe(figure);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.move(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("blur", () => this.move(null));
  }

  show(spec) {
    this.spec = spec;
    this.redraw();
  }

  clear(label) {
    this.spec = null;
    this.place = null;
    this.svg.replaceChildren();
    this.svg.setAttribute("aria-label", label);
    this.svg.setAttribute("height", 0);
  }

  redraw() {
    const width = Math.floor(this.figure.clientWidth);
    if (!this.spec || !width) return;
    this.svg.setAttribute("aria-label", this.spec.label);
    this.scales = (this.spec.draw ?? draw)(this.svg, this.spec, width);
    if (this.place !== null) this.move(Math.min(this.place, this.spec.cursor.length - 1));
  }

  point(event) {
    if (!this.spec?.cursor?.length) return;
    const at = event.clientX - this.svg.getBoundingClientRect().left;
    let best = 0;
    this.spec.cursor.forEach((value, i) => {
      if (Math.abs(this.scales.x(value) - at) < Math.abs(this.scales.x(this.spec.cursor[best]) - at)) best = i;
    });
    this.move(best);
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.move(null);
    if (!(event.key in steps) || !this.spec?.cursor?.length) return;
    event.preventDefault();
    const last = this.spec.cursor.length - 1;
    const from = this.place ?? (steps[event.key] > 0 ? -1 : last + 1);
    this.move(Math.max(0, Math.min(last, from + steps[event.key])));
  }

  move(place) {
    this.place = place;
    const group = this.svg.querySelector(".cursor");
    group?.replaceChildren();
    if (place !== null && group) {
      const { x, box } = this.scales;
      const at = x(this.spec.cursor[place]);
      group.append(shape("line", { x1: at, x2: at, y1: box.top, y2: box.bottom, class: "crosshair" }));
    }
    this.onCursor?.(place === null ? null : this.spec.cursor[place]);
  }
}
