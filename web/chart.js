// A small line chart of the last minutes of one figure.

import { make } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 70;
const MAX_SAMPLES = 180;

function svg(tag, attributes) {
  const element = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export class Chart {
  // `format` turns a value into text; `top`, when given, is the upper edge, else the largest value.
  constructor(title, format, top) {
    this.format = format;
    this.top = top;
    this.samples = []; // null: there was nothing to measure
    this.output = make("output", {}, "–");
    this.area = svg("path", { class: "area" });
    this.line = svg("path", {});
    const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
    drawing.append(this.area, this.line);
    this.root = make("figure", { class: "chart" }, make("figcaption", {}, title, this.output), drawing);
  }

  add(value) {
    this.samples.push(Number.isFinite(value) ? value : null);
    if (this.samples.length > MAX_SAMPLES) this.samples.shift();
    const last = this.samples.findLast((sample) => sample !== null);
    this.output.textContent = last === undefined ? "–" : this.format(last);
    this.draw();
  }

  draw() {
    const known = this.samples.filter((sample) => sample !== null);
    const top = this.top ?? Math.max(1e-9, ...known) * 1.1;
    const x = (index) => (WIDTH * (index + MAX_SAMPLES - this.samples.length)) / (MAX_SAMPLES - 1);
    const y = (value) => HEIGHT - (HEIGHT - 2) * Math.min(1, value / top) - 1;
    let line = "";
    let area = "";
    let begin = null; // of the piece that is being drawn
    this.samples.forEach((value, index) => {
      if (value === null) {
        begin = null;
        return;
      }
      line += `${begin === null ? "M" : "L"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      if (begin !== null) {
        const left = `${x(index - 1).toFixed(1)} `;
        const right = `${x(index).toFixed(1)} `;
        area += `M${left}${HEIGHT}L${left}${y(this.samples[index - 1]).toFixed(1)}L${right}${y(value).toFixed(1)}L${right}${HEIGHT}Z`;
      }
      begin = index;
    });
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }
}
