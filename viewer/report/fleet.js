"use strict";
// Many ranks at once: which are different, in words; the peaks of their lives; peaks of every step of each, as colours.

const FEW_RANKS = 8, HEAT_RANKS = 4; // of no more, all are drawn; with fewer, other parts show all of it

// What 'shardledger ranks' says: a sentence, then a line for each group, of which wide space parts the ranks from the rest.
function showAlike(run) {
  const [first, ...lines] = run.rank_lines.split("\n").filter((line) => line !== "");
  const box = document.getElementById("alike");
  box.hidden = !first;
  if (!first) return;
  box.replaceChildren(element("p", {}, element("b", {}, first)), lines.length ? element("ul", {}, ...lines.map((line) => {
    const [, ranks, rest] = /^(.*?)\s{2,}(.*)$/.exec(line.trim()) || [null, "", line.trim()];
    return element("li", {}, ranks ? element("b", {}, `${ranks} `) : null, rest);
  })) : "");
}

// "0–3, 7" of a long list as far as it fits, with the number of all.
function shortRuns(numbers) {
  const text = formatRuns(numbers);
  if (text.length <= 40) return text;
  return `${text.slice(0, text.lastIndexOf(",", 40))}, … (${plural(numbers.length, "rank")})`;
}

const BIN_ROWS = 16;

// How many ranks have how high a peak in their life. Empty stretches are one row.
function showHistogram(all) {
  const box = document.getElementById("histogram"), known = all.filter((view) => view.life);
  const peaks = known.map((view) => view.life.allocated);
  const low = Math.min(...peaks), high = Math.max(...peaks);
  box.parentElement.hidden = known.length <= FEW_RANKS || low === high;
  if (box.parentElement.hidden) return;
  let width = 2 ** Math.max(0, Math.floor(Math.log2(high / 100))), bins;
  for (;; width *= 2) {
    bins = groupBy(known.map((view) => ({view, bin: Math.floor(view.life.allocated / width)})), "bin");
    const gaps = [...bins.keys()].filter((bin) => !bins.has(bin - 1)).length - 1;
    if (bins.size + gaps <= BIN_ROWS) break;
  }
  const stretch = (from, to) => element("span", {title: `from ${formatExact(from * width)}, less than ${formatExact(to * width)}`},
                                        `${formatTick(from * width)} to ${formatTick(to * width)}`);
  const most = Math.max(...[...bins.values()].map((bin) => bin.length));
  const rows = [];
  let before = null;
  for (const bin of [...bins.keys()].sort((a, b) => a - b)) {
    if (before !== null && bin > before + 1) rows.push([stretch(before + 1, bin), "", "0", ""]);
    const ranks = bins.get(bin).map(({view}) => view.rank);
    rows.push([stretch(bin, bin + 1),
               element("div", {class: "bar", "aria-hidden": "true"}, element("span", {style: {width: `${(ranks.length / most) * 100}%`, background: "var(--less-3)"}})),
               ranks.length.toLocaleString("en-US"), shortRuns(ranks)]);
    before = bin;
  }
  box.replaceChildren(plainTable(["Peak allocated", "", "Ranks", "They are"], rows, [2]));
}

// The rank that each is held against, and whether they are several.
function findBases(run) {
  const largest = run.groups[0]?.representative ?? null;
  const bases = new Map(run.ranks.map(({rank, group}) => [rank, group === null ? largest : run.groups[group].base]));
  return {largest, bases, several: new Set(bases.values()).size > 1};
}

const HEAT_ROWS = 256, HEAT_HEIGHT = 512, HEAT_CLASSES = 4, HEAT_AXIS = 22;

class HeatMap {
  constructor(app, box) {
    Object.assign(this, {app, box, run: app.run, steps: app.run.heat.steps, series: new Map()});
    this.section = box.closest("section");
    this.section.hidden = app.all.length < HEAT_RANKS || this.steps.length < 2;
    if (this.section.hidden) return;
    if (app.all.length > FEW_RANKS) document.getElementById("figures").after(this.section); // it is the overview then
    this.read();
    const {largest, bases, several} = findBases(this.run);
    this.largest = this.series.has(largest) ? largest : null;
    this.bases = bases;
    this.ways = [["bytes", "allocated bytes"]];
    if (this.largest !== null) this.ways.unshift(["difference", `difference from rank ${largest}`]);
    if (this.largest !== null && several) this.ways.unshift(["kind", "difference from its own kind"]);
    this.way = this.ways[0][0];
    this.orders = this.findOrders();
    this.order = this.orders[0];
    this.build();
  }

  // page_heat.c says how: bytes of each column, NaN where the rank has none; a series is of several ranks.
  read() {
    const found = new Map(), bytes = this.run.samples;
    for (const [rank, offset] of this.run.heat.ranks) {
      if (!found.has(offset)) {
        const values = new Float64Array(this.steps.length);
        let at = offset, sum = 0;
        for (let i = 0; i < values.length; i++) {
          let value = 0, scale = 1, byte;
          do {
            byte = bytes[at++];
            value += (byte & 0x7f) * scale;
            scale *= 128;
          } while (byte & 0x80);
          sum += value % 2 ? -(value + 1) / 2 : value / 2;
          values[i] = sum > 0 ? sum - 1 : NaN;
        }
        found.set(offset, values);
      }
      this.series.set(rank, found.get(offset));
    }
  }

  // Ways to order ranks: [{name, of(rank): unit's name}], a unit being what stands together.
  findOrders() {
    const facts = new Map(this.run.ranks.map((row) => [row.rank, row]));
    const orders = [{name: "host", of: (rank) => facts.get(rank).host ?? "no host"}];
    for (const [dim, rows] of groupBy(this.run.mesh, "dim")) {
      const places = new Map(rows.map((row) => [row.rank, row.coordinate]));
      orders.push({name: dim, sorted: true, place: (rank) => places.get(rank) ?? Infinity,
                   of: (rank) => (places.has(rank) ? `${dim}=${places.get(rank)}` : `no ${dim}`)});
    }
    if (this.run.groups.length > 1)
      orders.push({name: "group", sorted: true, place: (rank) => facts.get(rank).group ?? Infinity,
                   of: (rank) => (facts.get(rank).group === null ? "no group" : `group ${facts.get(rank).group}`)});
    return orders;
  }

  build() {
    const choice = (name, words, options, value, change) => element("label", {}, `${words} `, element("select", {"data-choose": name,
      onchange: (event) => change(event.target.value)}, ...options.map(([key, text]) => element("option", {value: key, selected: key === value}, text))));
    this.canvas = element("canvas", {tabindex: "0", role: "application", "aria-label": "Peak of every step of every rank, as colours",
                                     "aria-describedby": "heat-keys", onkeydown: (event) => this.key(event), onmouseleave: hideTip,
                                     onmousemove: (event) => this.hover(event), onclick: (event) => this.click(event)});
    this.legend = element("div", {class: "legend"});
    this.said = element("output", {class: "quiet", "aria-live": "polite"});
    this.box.replaceChildren(
      element("div", {class: "toolbar"},
        this.ways.length < 2 ? "" : choice("way", "Colour", this.ways, this.way, (way) => {
          this.way = way;
          this.draw();
        }),
        this.orders.length < 2 ? "" : choice("order", "Order by", this.orders.map(({name}) => [name, name]), this.order.name, (name) => {
          this.order = this.orders.find((order) => order.name === name);
          this.chosen = null;
          this.draw();
        })),
      this.legend, this.canvas, element("p", {class: "heat-said"}, this.said));
  }

  // The rank whose peaks are taken off this one's, or told beside them.
  baseOf(rank) {
    return this.way === "kind" ? this.bases.get(rank) : this.largest;
  }

  // Rows of ranks, none of which has ranks of two units unless there are more units than rows.
  layOut() {
    const ranks = [...this.series.keys()];
    const firsts = new Map();
    for (const rank of ranks) if (!firsts.has(this.order.of(rank))) firsts.set(this.order.of(rank), this.order.sorted ? this.order.place(rank) : rank);
    const sorted = ranks.map((rank) => ({rank, unit: this.order.of(rank)}))
      .sort((a, b) => firsts.get(a.unit) - firsts.get(b.unit) || a.rank - b.rank);
    const units = firsts.size > HEAT_ROWS ? [sorted] : [...groupBy(sorted, "unit").values()];
    let each = 1;
    while (units.reduce((sum, unit) => sum + Math.ceil(unit.length / each), 0) > HEAT_ROWS) each++;
    this.each = each;
    this.rows = units.flatMap((unit) => Array.from({length: Math.ceil(unit.length / each)}, (_, i) =>
      ({unit: unit[0].unit, first: i === 0, ranks: unit.slice(i * each, (i + 1) * each).map((one) => one.rank)})));
    this.height = Math.max(2, Math.min(18, Math.floor(HEAT_HEIGHT / this.rows.length)));
    const value = (rank, column) => this.series.get(rank)[column] - (this.way === "bytes" ? 0 : this.series.get(this.baseOf(rank))[column]);
    let low = Infinity, high = -Infinity;
    for (const row of this.rows)
      row.cells = this.steps.map((_, column) => {
        let cell = null;
        for (const rank of row.ranks) {
          const here = value(rank, column);
          if (!Number.isNaN(here) && (cell === null || Math.abs(here) > Math.abs(cell.value))) cell = {rank, value: here};
        }
        if (cell) [low, high] = [Math.min(low, cell.value), Math.max(high, cell.value)];
        return cell;
      });
    this.findClasses(low, high);
  }

  // bounds: from which value on a cell has the next colour. Differences less than the tolerance have none.
  findClasses(low, high) {
    if (this.way === "bytes") {
      const width = Math.max(1, (high - low) / (HEAT_CLASSES + 1));
      this.bounds = Array.from({length: HEAT_CLASSES}, (_, i) => low + (i + 1) * width);
      this.lowest = low;
      return;
    }
    const most = Math.max(Math.abs(low), Math.abs(high));
    this.least = Math.max(1 << 20, this.series.get(this.largest).reduce((a, b) => (b > a ? b : a), 0) / 100);
    this.bounds = [this.least];
    for (let i = 1; i < HEAT_CLASSES && most > this.least; i++) {
      const bound = 2 ** Math.round(Math.log2(this.least * (most / this.least) ** (i / HEAT_CLASSES)));
      if (bound > this.bounds[this.bounds.length - 1] && bound <= most) this.bounds.push(bound);
    }
  }

  // The name of the colour: even, less-1 … less-4, more-1 … more-4.
  tone(value) {
    let size = 0;
    const distance = this.way === "bytes" ? value : Math.abs(value);
    while (size < this.bounds.length && distance >= this.bounds[size]) size++;
    return size === 0 ? "even" : `${this.way === "bytes" || value < 0 ? "less" : "more"}-${size}`;
  }

  showLegend() {
    const part = (tone, text) => element("span", {class: "named"}, swatch(`var(--${tone})`), text);
    const parts = [];
    if (this.way === "bytes") {
      parts.push(part("even", `from ${formatBytes(this.lowest)}`));
      this.bounds.forEach((bound, i) => parts.push(part(`less-${i + 1}`, `from ${formatBytes(bound)}`)));
    } else {
      const side = (sign) => this.bounds.map((bound, i) => [bound, i]).filter(([, i]) => this.rows.some((row) => row.cells.some((cell) =>
        cell && this.tone(cell.value) === `${sign}-${i + 1}`)));
      for (const [bound, i] of side("less").reverse()) parts.push(part(`less-${i + 1}`, `−${formatTick(bound)} or less`));
      parts.push(part("even", `less than ${formatTick(this.least)} apart`));
      for (const [bound, i] of side("more")) parts.push(part(`more-${i + 1}`, `+${formatTick(bound)} or more`));
    }
    if (this.rows.some((row) => row.cells.includes(null))) parts.push(part("paper", "no figure"));
    this.legend.replaceChildren(...parts);
    document.getElementById("fleet-lead").textContent = `What was allocated at the peak of each step, ${
      this.way === "bytes" ? "in bytes" : this.way === "kind" ?
        `against the rank that speaks for its own kind (${formatRuns([...new Set(this.bases.values())])}), in the same step` :
        `against rank ${this.largest}, which speaks for ${plural(this.run.groups[0].count, "rank")}, in the same step`}.${
      this.each > 1 ? ` A row is up to ${this.each} ranks of one ${this.order.name}: the one that ${this.way === "bytes" ? "is highest" : "differs most"}.` : ""}${
      this.steps.some(([first, last]) => last > first) ? " A column is several steps: the highest of each rank." : ""}`;
  }

  draw() {
    if (this.section.hidden) return;
    this.layOut();
    this.showLegend();
    const ratio = devicePixelRatio, {canvas} = this;
    const width = canvas.parentElement.clientWidth, height = this.rows.length * this.height;
    canvas.style.height = `${height + HEAT_AXIS}px`;
    canvas.width = width * ratio;
    canvas.height = (height + HEAT_AXIS) * ratio;
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    this.paint(ctx, width, height);
  }

  asSvg() {
    const width = this.canvas.parentElement.clientWidth, height = this.rows.length * this.height;
    return drawnAsSvg(width, height + HEAT_AXIS, "f", (context) => this.paint(context, width, height));
  }

  paint(ctx, width, height) {
    const tones = new Map();
    ctx.font = cssFont(12);
    this.left = Math.min(width * 0.3, 10 + Math.max(...this.rows.map((row) => (row.first ? ctx.measureText(row.unit).width : 0))));
    this.cell = (width - this.left) / this.steps.length;
    this.rows.forEach((row, y) => row.cells.forEach((cell, x) => {
      if (!cell) return;
      const tone = this.tone(cell.value);
      if (!tones.has(tone)) tones.set(tone, colour(`--${tone}`));
      ctx.fillStyle = tones.get(tone);
      const from = Math.round(this.left + x * this.cell), to = Math.round(this.left + (x + 1) * this.cell);
      ctx.fillRect(from, y * this.height, Math.max(1, to - from - (this.cell > 6 ? 1 : 0)), this.height - (this.height > 6 ? 1 : 0));
    }));
    this.drawAxes(ctx, width, height);
    this.drawChosen(ctx);
  }

  drawAxes(ctx, width, height) {
    ctx.fillStyle = colour("--quiet");
    ctx.textBaseline = "middle";
    let free = 0;
    this.rows.forEach((row, y) => {
      const middle = Math.max(7, (y + 0.5) * this.height);
      if (!row.first || middle < free) return;
      free = middle + 15;
      ctx.fillText(row.unit, 0, middle, this.left - 8);
    });
    ctx.textBaseline = "top";
    const each = roundUp(Math.max(1, 70 / this.cell));
    for (let x = 0; x < this.steps.length; x += each) {
      const text = x === 0 ? `step ${this.steps[x][0]}` : `${this.steps[x][0]}`, at = this.left + x * this.cell;
      if (at + ctx.measureText(text).width <= width) ctx.fillText(text, at, height + 6);
    }
  }

  drawChosen(ctx) {
    if (!this.chosen) return;
    ctx.strokeStyle = colour("--ink");
    ctx.lineWidth = 2;
    ctx.strokeRect(this.left + this.chosen.x * this.cell - 1, this.chosen.y * this.height - 1, this.cell + 2, this.height + 2);
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left - this.left) / this.cell), y = Math.floor((event.clientY - box.top) / this.height);
    return x >= 0 && x < this.steps.length && y >= 0 && y < this.rows.length ? {x, y} : null;
  }

  // A cell in words: [what, where].
  words({x, y}) {
    const row = this.rows[y], cell = row.cells[x], [first, last] = this.steps[x];
    const steps = last > first ? `steps ${first} to ${last}` : `step ${first}`;
    const others = row.ranks.length > 1 ? ` of ${formatRuns(row.ranks)}` : "";
    if (!cell) return [`No figure: ${steps}`, `rank ${formatRuns(row.ranks)}, ${row.unit}`];
    const bytes = this.series.get(cell.rank)[x];
    const base = this.baseOf(cell.rank), apart = base === null ? NaN : bytes - this.series.get(base)[x];
    return [`Rank ${cell.rank}, ${steps}: ${formatBytes(bytes)}`,
            `${Number.isNaN(apart) || cell.rank === base ? "" : apart === 0 ? `as rank ${base}; ` : `${apart > 0 ? "+" : ""}${formatBytes(apart)} against rank ${base}; `}${row.unit}${
              others && `; it ${this.way === "bytes" ? "is highest" : "differs most"}${others}`}`];
  }

  hover(event) {
    const place = this.under(event);
    if (!place) return hideTip();
    const [what, where] = this.words(place);
    showTip(event, element("b", {}, what), element("div", {}, where));
  }

  choose(place) {
    this.chosen = place;
    this.said.textContent = this.words(place).join(", ");
    this.draw();
  }

  click(event) {
    const place = this.under(event);
    if (!place) return;
    this.choose(place);
    this.open(place);
  }

  open({x, y}) {
    const cell = this.rows[y].cells[x], [first, last] = this.steps[x];
    if (!cell || !this.app.standFor(cell.rank)) return;
    this.app.showRank(cell.rank);
    const step = this.app.view.steps.filter((one) => one.step >= first && one.step <= last)
      .reduce((a, b) => (a === null || b.allocated > a.allocated ? b : a), null);
    if (step) this.app.showStep(step);
    document.getElementById("timeline").scrollIntoView();
  }

  key(event) {
    const ways = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !(ways || event.key === "Enter" || event.key === " ")) return;
    event.preventDefault();
    const {x, y} = this.chosen || {x: ways ? -ways[0] : 0, y: ways ? -ways[1] : 0};
    if (ways) this.choose({x: Math.min(Math.max(x + ways[0], 0), this.steps.length - 1), y: Math.min(Math.max(y + ways[1], 0), this.rows.length - 1)});
    else if (this.chosen) this.open(this.chosen);
    else this.choose({x, y});
  }
}
