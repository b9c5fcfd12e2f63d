"use strict";
// Memory over time: a stacked chart whose time axis the lanes below it share.

const CHART_HEIGHT = 320;
const GUTTER = 72; // for the axis of bytes, and for the lanes' names

function cssFont(size) {
  return `${size}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;
}

// Ticks of a time axis from min to max. Times always count from the start of the run, in one unit, so that two views can be compared.
function timeTicks(min, max, most) {
  const step = timeStep(min, max, most), ticks = [];
  for (let n = Math.ceil(min / step); n * step <= max; n++) ticks.push(n * step);
  return ticks;
}

function timeStep(min, max, most) {
  return roundUp((max - min) / Math.max(4, most));
}

// "6.9726 s": with as many digits as tell neighbours apart. A unit has at most three digits before the point, but for seconds.
function formatTimeTick(ns, step, end) {
  const [unit, name] = end < 1e3 ? [1, "ns"] : end < 1e6 ? [1e3, "µs"] : end < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const digits = Math.max(0, Math.ceil(-Math.log10((step / unit) * 1.000001)));
  return `${(ns / unit).toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits})} ${name}`;
}

class TimeChart {
  // actions: zoom(from, to), select(at), hover(at or null, event, bytes)
  constructor(box, layers, actions) {
    this.box = box;
    this.layers = layers;
    this.actions = actions;
    this.plot = null;
  }

  get width() {
    return Math.max(280, this.box.clientWidth);
  }

  // Shows a rank from one moment to another; moment is the selected one.
  show(view, from, to, moment) {
    Object.assign(this, {view, from, to, moment});
    const {times, sums, dense} = view.memory.drawn(from, to, this.width - GUTTER - 12);
    this.dense = dense;
    const data = [times, ...sums.slice().reverse()];
    this.data = data;
    this.top = sums.length ? highestOf(sums[sums.length - 1]) : 0;
    if (!this.plot) this.make(data);
    else {
      this.plot.setData(data, false);
      this.plot.batch(() => {
        this.plot.setScale("x", {min: from, max: to});
        this.plot.setScale("y", {min: 0, max: this.top * 1.08 || 1});
      });
    }
  }

  // After a change of colours, of the width or of the rank.
  remake() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    if (this.view) this.show(this.view, this.from, this.to, this.moment);
  }

  make(data) {
    const grid = {stroke: colour("--grid"), width: 1};
    const axis = {stroke: colour("--quiet"), font: cssFont(12), ticks: {show: false}};
    const fills = this.layers.map(categoryColour).reverse();
    const options = {
      width: this.width, height: CHART_HEIGHT, padding: [14, 12, 0, 0], legend: {show: false},
      scales: {x: {time: false, range: () => [this.from, this.to]}, y: {range: () => [0, this.top * 1.08 || 1]}},
      series: [{}, ...fills.map((fill) => ({fill, stroke: fill, width: 1, points: {show: false},
                                            paths: uPlot.paths.stepped({align: 1})}))],
      axes: [
        {...axis, grid, size: 38, gap: 9, splits: (u, i, min, max) => timeTicks(min, max, this.width / 130),
         values: (u, ticks) => this.labels(ticks)},
        {...axis, grid, size: GUTTER, splits: (u, i, min, max) => byteTicks(max, 6), values: (u, ticks) => (this.top ? ticks.map(formatTick) : [])},
      ],
      cursor: {y: false, points: {show: false}, drag: {x: true, y: false, setScale: false, dist: 4},
               bind: {dblclick: () => () => {
                 this.actions.zoom(null);
                 return null;
               }}},
      hooks: {drawClear: [(u) => this.drawTones(u)], draw: [(u) => this.drawMarks(u)],
              setSelect: [(u) => this.selected(u)]},
    };
    this.options = options;
    this.plot = new uPlot(options, data, this.box);
    const over = this.plot.over;
    let down = null;
    over.addEventListener("mousedown", (event) => (down = event.clientX));
    over.addEventListener("mousemove", (event) => {
      const box = over.getBoundingClientRect(), u = this.plot;
      this.actions.hover(u.posToVal(event.clientX - box.left, "x"), event, u.posToVal(event.clientY - box.top, "y"));
    });
    over.addEventListener("mouseleave", () => this.actions.hover(null));
    over.addEventListener("click", (event) => {
      if (down !== null && Math.abs(event.clientX - down) < 4)
        this.actions.select(this.plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x"));
    });
    over.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      const at = this.plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x");
      const factor = event.deltaY < 0 ? 0.7 : 1 / 0.7;
      this.actions.zoom(at - (at - this.from) * factor, at + (this.to - at) * factor);
    }, {passive: false});
  }

  // None where the edge would cut it; every other one where they would run into each other.
  labels(ticks) {
    const pixels = this.width / (this.to - this.from), step = timeStep(this.from, this.to, this.width / 130);
    const texts = ticks.map((at) => formatTimeTick(at, step, this.to)), each = Math.max(0, ...texts.map((text) => text.length)) * 7 > step * pixels ? 2 : 1;
    return texts.map((text, i) => ((this.to - ticks[i]) * pixels < 28 || i % each ? "" : text));
  }

  selected(u) {
    if (u.select.width < 4) return;
    const from = u.posToVal(u.select.left, "x"), to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
    this.actions.zoom(from, to);
  }

  // Phases behind the memory, as far as they can be told apart.
  drawTones(u) {
    const {ctx, bbox} = u;
    ctx.save();
    ctx.globalAlpha = 0.35;
    for (const phase of itemsBetween(this.view, this.view.outer, this.view.longestOuter, this.from, this.to)) {
      const left = Math.max(bbox.left, u.valToPos(phase.start, "x", true));
      const right = Math.min(bbox.left + bbox.width, u.valToPos(phase.end, "x", true));
      if (right - left < 2) continue;
      ctx.fillStyle = phaseColour(phase.kind);
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
    }
    ctx.restore();
  }

  drawMarks(u) {
    const {ctx, bbox} = u, ratio = devicePixelRatio;
    const line = (at, stroke, dash, width) => {
      const x = Math.round(u.valToPos(at, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) return null;
      ctx.strokeStyle = stroke;
      ctx.lineWidth = width * ratio;
      ctx.setLineDash(dash.map((n) => n * ratio));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      return x;
    };
    const labels = []; // drawn last, over all lines
    const label = (...parts) => labels.push(parts);
    const drawLabel = (text, x, y, fill) => {
      ctx.font = cssFont(11 * ratio);
      const width = ctx.measureText(text).width + 8 * ratio;
      const left = Math.min(Math.max(x - width / 2, bbox.left), bbox.left + bbox.width - width);
      ctx.fillStyle = fill;
      ctx.fillRect(left, y, width, 15 * ratio);
      ctx.fillStyle = colour("--paper");
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      ctx.fillText(text, left + 4 * ratio, y + 8 * ratio);
    };
    ctx.save();
    const steps = this.view.steps.filter((step) => step.end >= this.from && step.start <= this.to);
    if (steps.length < this.width / 12)
      for (const step of steps) {
        line(step.start, colour("--ink"), [2, 3], 0.75);
        line(step.end, colour("--ink"), [2, 3], 0.75);
      }
    const gaps = this.view.gaps.filter((gap) => gap.at >= this.from && gap.at <= this.to);
    for (const gap of gaps) {
      const x = line(gap.at, colour("--warning"), [], 1.5);
      if (x !== null && gaps.length < 12) label("gap", x, bbox.top + bbox.height - 16 * ratio, colour("--warning"));
    }
    for (const oom of this.view.ooms) {
      const x = line(oom.at, colour("--alarm"), [], 2);
      if (x !== null) label("out of memory", x, bbox.top + 16 * ratio, colour("--alarm"));
    }
    line(this.moment, colour("--ink"), [], 1.25);
    const best = steps.reduce((a, b) => (b.peak_at >= this.from && b.peak_at <= this.to && b.allocated > (a ? a.allocated : -1) ? b : a), null);
    if (best && best.peak_at !== null) {
      const x = u.valToPos(best.peak_at, "x", true), y = u.valToPos(best.allocated, "y", true);
      ctx.setLineDash([]);
      ctx.strokeStyle = colour("--ink");
      ctx.fillStyle = colour("--paper");
      ctx.lineWidth = 1.5 * ratio;
      ctx.beginPath();
      ctx.arc(x, y, 3.5 * ratio, 0, 7);
      ctx.fill();
      ctx.stroke();
      label(`peak ${formatBytes(best.allocated)}`, x, Math.max(0, y - 21 * ratio), colour("--ink"));
    }
    labels.forEach((parts) => drawLabel(...parts));
    ctx.restore();
  }
}
