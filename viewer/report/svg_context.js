"use strict";
// What is drawn on a canvas, as SVG: as much of CanvasRenderingContext2D as this page and its charting library use.

class RecordedPath {
  constructor(other) {
    this.words = other ? other.words.slice() : [];
  }
  moveTo(x, y) {
    this.words.push(`M${short(x)} ${short(y)}`);
  }
  lineTo(x, y) {
    this.words.push(`${this.words.length ? "L" : "M"}${short(x)} ${short(y)}`);
  }
  bezierCurveTo(...at) {
    this.words.push(`C${at.map(short).join(" ")}`);
  }
  rect(x, y, width, height) {
    this.words.push(`M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}z`);
  }
  arc(x, y, radius, from, to) {
    const at = (angle) => `${short(x + radius * Math.cos(angle))} ${short(y + radius * Math.sin(angle))}`, r = short(radius);
    if (to - from >= 2 * Math.PI - 0.001) this.words.push(`M${at(0)}A${r} ${r} 0 1 1 ${at(Math.PI)}A${r} ${r} 0 1 1 ${at(0)}z`);
    else this.words.push(`${this.words.length ? "L" : "M"}${at(from)}A${r} ${r} 0 ${to - from > Math.PI ? 1 : 0} 1 ${at(to)}`);
  }
  closePath() {
    this.words.push("z");
  }
  get text() {
    return this.words.join("");
  }
}

function short(number) {
  return String(Math.round(number * 100) / 100);
}

function escaped(text) {
  return String(text).replace(/[<>&"]/g, (letter) => ({"<": "&lt;", ">": "&gt;", "&": "&amp;", "\"": "&quot;"})[letter])
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
}

class SvgContext {
  // measure: a real context, which knows how wide text is.
  constructor(canvas, measure) {
    Object.assign(this, {canvas, measure, parts: [], stack: [], clips: 0, path: new RecordedPath(), matrix: new DOMMatrix(), clipped: null, dash: [],
                         fillStyle: "#000000", strokeStyle: "#000000", lineWidth: 1, globalAlpha: 1, font: "10px sans-serif", textAlign: "start", textBaseline: "alphabetic", lineCap: "butt", lineJoin: "miter"});
  }

  static kept = ["matrix", "clipped", "dash", "fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font", "textAlign", "textBaseline", "lineCap", "lineJoin"];

  save() {
    this.stack.push(SvgContext.kept.map((name) => this[name]));
  }
  restore() {
    const kept = this.stack.pop();
    if (kept) SvgContext.kept.forEach((name, i) => (this[name] = kept[i]));
  }
  scale(x, y) {
    this.matrix = this.matrix.scale(x, y);
  }
  translate(x, y) {
    this.matrix = this.matrix.translate(x, y);
  }
  rotate(angle) {
    this.matrix = this.matrix.rotate((angle * 180) / Math.PI);
  }
  setLineDash(dash) {
    this.dash = dash;
  }
  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }
  beginPath() {
    this.path = new RecordedPath();
  }
  moveTo(x, y) {
    this.path.moveTo(x, y);
  }
  lineTo(x, y) {
    this.path.lineTo(x, y);
  }
  rect(...at) {
    this.path.rect(...at);
  }
  arc(...at) {
    this.path.arc(...at);
  }
  closePath() {
    this.path.closePath();
  }

  add(name, attributes, text) {
    const {a, b, c, d, e, f, isIdentity} = this.matrix, all = {...attributes};
    if (!isIdentity) all.transform = `matrix(${[a, b, c, d, e, f].map(short).join(" ")})`;
    if (this.globalAlpha < 1) all.opacity = this.globalAlpha;
    const made = `<${name} ${Object.entries(all).map(([key, value]) => `${key}="${escaped(value)}"`).join(" ")}${text === undefined ? "/>" : `>${escaped(text)}</${name}>`}`;
    this.parts.push(this.clipped === null ? made : `<g clip-path="url(#${this.clipped})">${made}</g>`);
  }
  fill(path) {
    const text = (path instanceof RecordedPath ? path : this.path).text;
    if (text) this.add("path", {d: text, fill: this.fillStyle});
  }
  stroke(path) {
    const text = (path instanceof RecordedPath ? path : this.path).text;
    if (text) this.add("path", {d: text, fill: "none", stroke: this.strokeStyle, "stroke-width": short(this.lineWidth), ...(this.dash.length ? {"stroke-dasharray": this.dash.map(short).join(" ")} : {})});
  }
  // A clip inside another one is that of both.
  clip(path) {
    const {a, b, c, d, e, f} = this.matrix, id = `${this.prefix || "c"}${this.clips++}`, around = this.clipped === null ? "" : ` clip-path="url(#${this.clipped})"`;
    this.parts.push(`<clipPath id="${id}"${around}><path d="${(path instanceof RecordedPath ? path : this.path).text}" transform="matrix(${[a, b, c, d, e, f].map(short).join(" ")})"/></clipPath>`);
    this.clipped = id;
  }
  fillRect(x, y, width, height) {
    this.add("rect", {x: short(x), y: short(y), width: short(Math.max(0, width)), height: short(Math.max(0, height)), fill: this.fillStyle});
  }
  strokeRect(x, y, width, height) {
    this.add("rect", {x: short(x), y: short(y), width: short(width), height: short(height), fill: "none", stroke: this.strokeStyle, "stroke-width": short(this.lineWidth)});
  }
  clearRect() {} // nothing is there yet
  fillText(text, x, y) {
    const [, size, family] = /([\d.]+)px\s*(.*)$/.exec(this.font), down = {middle: 0.35, top: 0.8, hanging: 0.8, bottom: -0.2}[this.textBaseline] || 0;
    this.add("text", {x: short(x), y: short(y + down * size), fill: this.fillStyle, "font-size": size, "font-family": family.replaceAll("\"", "'"),
                      "text-anchor": {center: "middle", right: "end", end: "end"}[this.textAlign] || "start"}, text);
  }
}

// What draw(context) draws, as the inside of an SVG: {inside, width, height}.
function drawnAsSvg(width, height, prefix, draw) {
  const context = new SvgContext({width, height}, document.createElement("canvas").getContext("2d"));
  context.prefix = prefix;
  draw(context);
  return {inside: context.parts.join(""), width, height};
}
