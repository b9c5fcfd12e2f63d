"use strict";
// Lanes under the chart, on its time axis: steps, the phases of each thread, NCCL's collectives of each stream.

const LANE = 16, LANE_GAP = 6, DEEPEST = 6;

// Gives each interval the row under all that are still open at its start: nested ones lie below the one around them.
function layOut(intervals, deepest) {
  const ends = [];
  for (const interval of intervals) {
    let row = 0;
    for (let i = 0; i < ends.length; i++) if (ends[i] > interval.start) row = i + 1;
    interval.row = Math.min(row, deepest - 1);
    ends[interval.row] = Math.max(interval.end, ends[interval.row] || 0);
  }
  return ends.length;
}

// Streams whose calls lie one after the other share a lane: a job with many communicators has as many lanes as it has at a time.
function shareLanes(streams) {
  const lanes = [];
  for (const [stream, calls] of streams.sort((a, b) => a[1][0].start - b[1][0].start)) {
    const end = Math.max(...calls.map((call) => call.end));
    let lane = lanes.find((other) => other.end <= calls[0].start);
    if (!lane) lanes.push((lane = {streams: [], calls: []}));
    lane.streams.push(stream);
    lane.calls.push(...calls);
    lane.end = end;
  }
  return lanes;
}

class Lanes {
  constructor(canvas, chart, actions) {
    Object.assign(this, {canvas, chart, actions});
    canvas.addEventListener("mousemove", (event) => this.actions.hover(this.hit(event), event, this.timeOf(event)));
    canvas.addEventListener("mouseleave", () => this.actions.hover(null));
    canvas.addEventListener("click", (event) => this.clicked(event));
  }

  // The lanes of a rank, from the top.
  prepare(view, moduleName) {
    this.view = view;
    this.lanes = [{name: "steps", items: view.steps.map((step) => ({start: step.start, end: step.end, row: 0, step,
                                                                     text: `step ${step.step}`})), rows: 1}];
    const threads = [...groupBy(view.phases, "tid")].sort((a, b) => (b[0] === view.facts.pid) - (a[0] === view.facts.pid));
    for (const [tid, phases] of threads) {
      const items = phases.map((phase) => ({start: phase.start, end: phase.end, phase, text: phase.name}));
      const backward = phases.some((phase) => phase.kind === "backward");
      this.lanes.push({name: tid === view.facts.pid ? "main" : backward ? "backward" : `thread ${tid}`, rows: layOut(items, DEEPEST), items});
    }
    const timed = view.collectives.filter((call) => call.start !== null && call.end !== null);
    for (const {streams, calls} of shareLanes([...groupBy(timed, "stream")])) {
      const items = calls.map((call) => ({start: call.start, end: call.end, call,
                                          text: `${call.operation}${call.module ? " " + moduleName(call.module) : ""}`}));
      this.lanes.push({name: streams.length === 1 ? `NCCL ${streams[0]}` : `NCCL (${streams.length})`, rows: layOut(items, 3), items});
    }
    const untimed = view.collectives.filter((call) => call.start === null || call.end === null);
    if (untimed.length)
      this.lanes.push({name: "NCCL calls", rows: 1, items: untimed.map((call) => ({
        start: call.start ?? call.enqueued, end: call.start ?? call.enqueued, row: 0, call, text: call.operation}))});
    if (!view.steps.length) this.lanes.shift();
    for (const lane of this.lanes) lane.longest = longest(lane.items);
  }

  // Lanes, and rows of them, that have nothing in view take no room; how many there are is said.
  place() {
    let top = 4;
    this.shown = [];
    for (const lane of this.lanes) {
      const inView = this.visible(lane);
      if (!inView.length && lane.name !== "steps") continue;
      const rows = lane.name === "steps" ? 1 : Math.max(...inView.map((item) => item.row)) + 1;
      this.shown.push({...lane, inView, top, rows});
      top += rows * LANE + LANE_GAP;
    }
    this.folded = this.lanes.length - this.shown.length;
    this.height = top + (this.folded ? LANE : 0);
  }

  get scale() {
    const u = this.chart.plot;
    return {left: u.bbox.left / devicePixelRatio, width: u.bbox.width / devicePixelRatio};
  }

  visible(lane) {
    const {from, to} = this.chart;
    if (lane.name !== "steps") return itemsBetween(this.view, lane.items, lane.longest, from, to);
    return lane.items.filter((item) => item.end >= from && item.start <= to);
  }

  draw() {
    const {canvas, chart} = this, ratio = devicePixelRatio;
    this.place();
    canvas.style.height = `${this.height}px`;
    canvas.width = chart.width * ratio;
    canvas.height = this.height * ratio;
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    this.paint(ctx);
  }

  paint(ctx) {
    const {chart} = this, {left, width} = this.scale;
    ctx.font = cssFont(11);
    ctx.textBaseline = "middle";
    const position = (at) => left + ((at - chart.from) / (chart.to - chart.from)) * width;
    const ink = colour("--ink"), quiet = colour("--quiet"), paper = colour("--paper");
    for (const lane of this.shown) {
      ctx.fillStyle = quiet;
      ctx.textAlign = "right";
      ctx.fillText(lane.name, left - 8, lane.top + LANE / 2, left - 10);
      ctx.textAlign = "left";
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, lane.top, width, lane.rows * LANE);
      ctx.clip();
      for (const item of lane.inView) {
        // On whole pixels, so that what is short keeps its colour.
        const x = Math.round(Math.max(left - 1, position(item.start))), end = Math.round(Math.min(left + width + 1, position(item.end)));
        const y = lane.top + item.row * LANE, wide = end - x;
        ctx.fillStyle = item.call ? operationColour(item.call.operation) : item.step ? colour("--tone-step") : phaseColour(item.phase.kind);
        ctx.fillRect(x, y, wide > 3 ? wide - 1 : Math.max(wide, 1), LANE - 2);
        if (item.step && item.step.same_as !== null) this.hatch(ctx, x, y, wide, paper);
        if (wide < 24) continue;
        ctx.fillStyle = item.call ? "#10151a" : ink;
        const fits = Math.floor((wide - 8) / 6);
        if (fits < 2) continue;
        ctx.fillText(item.text.length > fits ? `${item.text.slice(0, fits - 1)}…` : item.text, x + 4, y + LANE / 2 - 0.5);
      }
      ctx.restore();
    }
    ctx.fillStyle = quiet;
    if (this.folded) ctx.fillText(`${plural(this.folded, "lane")} more, with nothing in view`, left, this.height - LANE / 2);
    const x = position(chart.moment);
    if (x >= left && x <= left + width) {
      ctx.fillStyle = ink;
      ctx.fillRect(x - 0.5, 0, 1, this.height);
    }
  }

  // Steps that are drawn from the one that they repeat.
  hatch(ctx, x, y, wide, paper) {
    ctx.strokeStyle = paper;
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (let at = x; at < x + wide; at += 6) {
      ctx.moveTo(at, y + LANE);
      ctx.lineTo(at + 6, y);
    }
    ctx.stroke();
  }

  timeOf(event) {
    const {left, width} = this.scale;
    const x = event.clientX - this.canvas.getBoundingClientRect().left - left;
    return this.chart.from + (x / width) * (this.chart.to - this.chart.from);
  }

  hit(event) {
    const at = this.timeOf(event), y = event.clientY - this.canvas.getBoundingClientRect().top;
    const slack = ((this.chart.to - this.chart.from) / this.chart.width) * 2;
    for (const lane of this.shown) {
      const row = Math.floor((y - lane.top) / LANE);
      if (row < 0 || row >= lane.rows || y < lane.top) continue;
      const near = lane.inView.filter((item) => item.row === row && item.start - slack <= at && item.end + slack >= at);
      return near.sort((a, b) => a.end - a.start - (b.end - b.start))[0] || null;
    }
    return null;
  }

  clicked(event) {
    const item = this.hit(event);
    if (item && item.step) this.actions.zoomStep(item.step);
    else {
      this.actions.select(this.timeOf(event));
      if (item) this.actions.pick(item);
    }
  }
}
