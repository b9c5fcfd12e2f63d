"use strict";
// Bars along steps or samples, each a stack; a tooltip tells what is in it.

function highestOf(values) {
  let most = 0;
  for (const value of values) if (value > most) most = value;
  return most;
}

// Of more rows than there are pixels, the highest of each few neighbours.
function thinned(rows, most) {
  const each = Math.ceil(rows.length / most);
  if (each === 1) return rows;
  const total = (row) => row.parts.reduce((sum, bytes) => sum + bytes, 0);
  const kept = [];
  for (let i = 0; i < rows.length; i += each)
    kept.push(rows.slice(i, i + each).reduce((a, b) => (total(b) > total(a) ? b : a)));
  return kept;
}

/*
 * Stacked bars along steps or samples: rows of {x, parts: [bytes of each layer], lines: [bytes or null]}; layers and lines
 * are {fill} and {stroke, dash}. label(x) is what stands under a bar, or "".
 */
class StackedBars {
  constructor(box, height, actions) {
    Object.assign(this, {box, height, actions, plot: null});
  }

  show(all, layers, lines, label) {
    const rows = thinned(all, 1.5 * Math.max(280, this.box.clientWidth));
    Object.assign(this, {rows, chosen: null});
    if (this.plot) this.plot.destroy();
    this.plot = null;
    if (!rows.length) return;
    const sums = layers.map(() => new Array(rows.length));
    rows.forEach((row, i) => {
      let sum = 0;
      row.parts.forEach((bytes, n) => (sums[n][i] = sum += bytes));
    });
    const series = lines.map((_, n) => rows.map((row) => row.lines[n]));
    this.top = Math.max(1, highestOf(sums[sums.length - 1] || []), ...series.map(highestOf));
    // Of many, one area a layer: thousands of bars take a second to paint.
    const area = rows.length > 120;
    const bars = area ? uPlot.paths.stepped({align: 1}) : uPlot.paths.bars({size: [0.86, 60], gap: 0});
    const places = rows.map((row) => row.x - (area ? 0.5 : 0));
    if (area) {
      places.push(rows[rows.length - 1].x + 0.5);
      for (const values of [...sums, ...series]) values.push(values[values.length - 1]);
    }
    const axis = {stroke: colour("--quiet"), font: cssFont(12), ticks: {show: false}, grid: {stroke: colour("--grid"), width: 1}};
    this.options = {
      width: Math.max(280, this.box.clientWidth), height: this.height, padding: [10, 12, 0, 0], legend: {show: false},
      scales: {x: {time: false, range: () => [rows[0].x - 0.5, rows[rows.length - 1].x + 0.5]}, y: {range: () => [0, this.top * 1.06]}},
      series: [{}, ...layers.map(({fill}) => ({fill, stroke: fill, width: 0, paths: bars, points: {show: false}})).reverse(),
               ...lines.map((line) => ({width: 1.25, points: {show: rows.length < 40 && !!line.dash, size: 5, fill: line.stroke}, ...line}))],
      axes: [{...axis, size: 30, grid: {show: false}, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000],
              values: (u, ticks) => ticks.map((x) => (Number.isInteger(x) ? label(x) : ""))},
             {...axis, size: GUTTER, splits: (u, i, min, max) => byteTicks(max, 4), values: (u, ticks) => ticks.map(formatTick)}],
      cursor: {y: false, points: {show: false}, drag: {x: false, y: false}},
      hooks: {draw: [(u) => this.drawChosen(u)]},
    };
    this.data = [places, ...sums.slice().reverse(), ...series];
    this.plot = new uPlot(this.options, this.data, this.box);
    const {over} = this.plot;
    over.addEventListener("mousemove", (event) => {
      const row = this.under(event);
      if (row) this.actions.tip(row, event);
      else hideTip();
    });
    over.addEventListener("mouseleave", hideTip);
    over.addEventListener("click", (event) => {
      const row = this.under(event);
      if (row) this.actions.select(row);
    });
  }

  under(event) {
    const left = event.clientX - this.plot.over.getBoundingClientRect().left;
    const x = Math.round(this.plot.posToVal(left, "x"));
    const i = lastNotAbove(this.rows.length, (n) => this.rows[n].x, x), next = this.rows[i + 1];
    return i < 0 || (next && next.x - x < x - this.rows[i].x) ? next : this.rows[i];
  }

  choose(x) {
    this.chosen = x;
    if (this.plot) this.plot.redraw(false);
  }

  drawChosen(u) {
    if (this.chosen === null || this.chosen === undefined) return;
    const {ctx, bbox} = u, ratio = devicePixelRatio;
    const left = u.valToPos(this.chosen - 0.43, "x", true), right = u.valToPos(this.chosen + 0.43, "x", true);
    const middle = (left + right) / 2, width = Math.min(Math.max(right - left, 3 * ratio), 60 * ratio);
    ctx.save();
    ctx.fillStyle = colour("--ink");
    ctx.fillRect(middle - width / 2, bbox.top + bbox.height + ratio, width, 3 * ratio);
    ctx.restore();
  }
}

// Peaks of all steps of a rank by category; a click goes to the step.
class StepsChart {
  constructor(box, layers, onStep) {
    this.layers = layers;
    this.bars = new StackedBars(box, 190, {select: (row) => onStep(row.step), tip: (row, event) => this.tip(row.step, event)});
  }

  show(view, others) {
    this.view = view;
    const steps = view.steps.filter((step) => step.allocated !== null);
    this.bars.box.parentElement.hidden = !steps.length;
    const rows = steps.map((step) => ({
      x: step.step, step, parts: this.layers.map((layer) => view.atPeak(step).get(layer) || 0),
      lines: [step.reserved, ...others.map((other) => other.stepByNumber.get(step.step)?.allocated ?? null)]}));
    this.bars.show(rows, this.layers.map((layer) => ({fill: categoryColour(layer)})),
                   [{stroke: colour("--ink"), width: 1.5, dash: [5, 4]}, ...others.map(() => ({stroke: colour("--quiet")}))], (x) => `${x}`);
  }

  tip(step, event) {
    const held = this.view.atPeak(step);
    showTip(event, element("b", {}, `Step ${step.step}: peak ${formatBytes(step.allocated)}`),
            element("div", {}, `${formatExact(step.allocated)}, ${step.place}`),
            element("div", {class: "quiet"}, `active ${formatBytes(step.active)} · reserved ${formatBytes(step.reserved)} · device ${formatBytes(step.device)}`),
            step.before > step.allocated ? element("div", {}, `up to ${formatBytes(step.before)} allocated between the step before and this one`) : null,
            step.same_as === null ? null : element("div", {class: "quiet"}, `repeats step ${step.same_as}`),
            categoryRows(this.layers.map((layer) => [layer, held.get(layer) || 0]), step.allocated, null));
  }

  choose(step) {
    this.bars.choose(step ? step.step : null);
  }
}

// Rows of a tooltip: [name, bytes, colour] from the top of the stack down; the one under the pointer stands out.
function partRows(parts, whole, here) {
  const rows = parts.filter(([, bytes]) => bytes > 0).reverse();
  return element("table", {}, element("tbody", {}, ...rows.map(([name, bytes, fill]) =>
    element("tr", {class: name === here ? "here" : null}, element("td", {}, named(fill, name)),
            element("td", {class: "number"}, formatBytes(bytes)), element("td", {class: "number"}, formatShare(bytes, whole))))));
}

function categoryRows(pairs, whole, here) {
  return partRows(pairs.map(([name, bytes]) => [name, bytes, categoryColour(name)]), whole, here);
}

function showTip(event, ...content) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(...content.filter((part) => part !== null && part !== undefined));
  tip.hidden = false;
  const {width, height} = tip.getBoundingClientRect();
  const right = event.clientX + 16 + width < innerWidth;
  tip.style.left = `${Math.max(4, right ? event.clientX + 16 : event.clientX - width - 16)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - height - 6))}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}
