// Plots as SVG: lines over time, and bars of a histogram.

import { svg } from "./dom.js";

const [HEIGHT, LEFT, BOTTOM] = [170, 48, 20];

/** A round number that is at least `value`, so that an axis does not move with every point. */
function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((round) => round >= value * 0.999);
}

/** A number with a few significant digits. */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  if (value >= 1e6) return `${+(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${+(value / 1e3).toFixed(1)} k`;
  return value >= 100 ? String(Math.round(value)) : String(+value.toFixed(value >= 10 ? 1 : 2));
}

/** Seconds as text. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${short(seconds * 1000)} ms`;
  if (seconds < 120) return `${short(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min` : `${Math.floor(seconds / 86400)} days`;
}

function axes(width, top, format) {
  return [0, 0.5, 1].flatMap((part) => {
    const y = 8 + (1 - part) * (HEIGHT - BOTTOM - 8);
    return [svg("line", { class: "grid", x1: LEFT, x2: width, y1: y, y2: y }), svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, format(top * part))];
  });
}

/**
 * Lines over the last `span` seconds. `series` is a list of lists of `[age, value]`, where values that are not numbers are gaps.
 * A pointer over the plot shows the values there.
 */
export function lines(parent, series, { span, format = short, names }) {
  const width = parent.clientWidth;
  const top = ceiling(Math.max(0, ...series.flat().map((point) => point[1]).filter(Number.isFinite)));
  const x = (age) => LEFT + (1 - age / span) * (width - LEFT);
  const y = (value) => 8 + (1 - value / top) * (HEIGHT - BOTTOM - 8);
  const nodes = axes(width, top, format);
  for (const age of [span, span / 2, 0]) {
    nodes.push(svg("text", { x: x(age), y: HEIGHT - 4, "text-anchor": age === 0 ? "end" : age === span ? "start" : "middle" }, age === 0 ? "now" : `${short(age)} s ago`));
  }
  series.forEach((points, index) => {
    const known = points.filter(([age, value]) => age <= span && Number.isFinite(value));
    if (!known.length) return;
    const path = known.map(([age, value], at) => `${at ? "L" : "M"}${x(age).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    if (index === 0) nodes.push(svg("path", { class: "area s1", d: `${path}L${x(known.at(-1)[0]).toFixed(1)} ${y(0)}L${x(known[0][0]).toFixed(1)} ${y(0)}Z` }));
    nodes.push(svg("path", { class: `line s${index + 1}`, d: path }));
  });
  const latest = series.map((points, index) => `${names[index]} ${format(points.at(-1)?.[1] ?? NaN)}`).join(", ");
  const root = frame(width, nodes, latest);
  const cursor = svg("g");
  root.append(cursor);
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    const age = (1 - (at - LEFT) / (width - LEFT)) * span;
    const nearest = (points) => points.reduce((best, point) => (Math.abs(point[0] - age) < Math.abs((best?.[0] ?? Infinity) - age) ? point : best), null);
    const text = series.map((points, index) => `${names[index]} ${format(nearest(points)?.[1] ?? NaN)}`).join("  ");
    cursor.replaceChildren(svg("line", { class: "cursor", x1: at, x2: at, y1: 8, y2: HEIGHT - BOTTOM }),
      svg("text", { class: "tip", x: at + (at > width / 2 ? -8 : 8), y: 20, "text-anchor": at > width / 2 ? "end" : "start" }, text));
  });
  root.addEventListener("pointerleave", () => cursor.replaceChildren());
  parent.replaceChildren(root);
}

/** The counts of a histogram as bars, from the first to the last bucket that is not empty. */
export function bars(parent, { bounds, counts }) {
  const width = parent.clientWidth;
  const first = counts.findIndex((count) => count > 0);
  const last = counts.findLastIndex((count) => count > 0);
  if (first < 0) {
    parent.replaceChildren(frame(width, [...axes(width, 1, short), svg("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "No request yet")], "no request yet"));
    return;
  }
  const shown = counts.slice(first, last + 1);
  const top = ceiling(Math.max(...shown));
  const slot = Math.min(64, (width - LEFT) / shown.length);
  const nodes = axes(width, top, short);
  shown.forEach((count, at) => {
    const height = (count / top) * (HEIGHT - BOTTOM - 8);
    const bound = bounds[first + at];
    const label = bound === undefined ? `over ${duration(bounds.at(-1))}` : `up to ${duration(bound)}`;
    const x = LEFT + at * slot;
    nodes.push(svg("rect", { class: "s1", x: x + 3, y: HEIGHT - BOTTOM - height, width: Math.max(1, slot - 6), height, rx: 3 }, svg("title", {}, `${label}: ${count}`)));
    const every = Math.ceil(52 / slot);
    if (at % every === 0) nodes.push(svg("text", { x: x + slot / 2, y: HEIGHT - 4, "text-anchor": "middle" }, bound === undefined ? "more" : duration(bound)));
  });
  parent.replaceChildren(frame(width, nodes, `${counts.reduce((sum, count) => sum + count, 0)} requests`));
}

function frame(width, nodes, label) {
  return svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label }, ...nodes);
}
