"use strict";
// The page: what is shown (rank, view, moment), and what changes it.

class App {
  constructor(run) {
    this.run = run;
    this.layers = layersOf(run);
    this.all = run.ranks.map((facts) => rankView(run, facts, this.layers));
    this.byRank = new Map(this.all.map((view) => [view.rank, view]));
    this.ranks = this.all.filter((view) => view.drawn);
    const actions = {zoom: (from, to) => this.zoom(from, to), select: (at) => this.select(at),
                     zoomStep: (step) => this.showStep(step)};
    this.modules = new ModulesTable(document.getElementById("modules"), run.modules, (name) => this.pick(name));
    this.chart = new TimeChart(document.getElementById("time-chart"), this.layers,
                               {...actions, hover: (at, event, bytes) => this.hoverMemory(at, event, bytes)});
    this.lanes = new Lanes(document.getElementById("lanes"), this.chart,
                           {...actions, hover: (item, event) => this.hoverLane(item, event), pick: (item) => this.pickLane(item)});
    this.device = new DevicePart(run, document.getElementById("device"), (at) => this.showPlace(at, null));
    this.allocations = new AllocationsPart(this, document.getElementById("allocations"));
    this.segments = new SegmentsPart(this, document.getElementById("segments"));
    this.compare = new ComparePart(this, document.getElementById("compare"));
    this.holders = new HoldersPart(this, document.getElementById("holders"));
    this.steps = new StepsChart(document.getElementById("steps-chart"), this.layers, (step) => this.showStep(step));
    this.strips = new RankStrips(document.getElementById("strips"), this.layers, this.all.length > FEW_RANKS ? run.groups : [], (rank) => this.showRank(rank));
    this.heat = new HeatMap(this, document.getElementById("heat"));
    this.owners = new SortedTable(element("div", {class: "scroll"}), [
      {name: "Module", value: (row) => this.modules.short(row.module) || "", cell: (row) => element("button", {type: "button", class: "plain fqn", title: `The allocations of ${this.modules.name(row.module) || "no module"}`,
        onclick: () => this.pick(this.modules.name(row.module) || "no module", row.category, row.detail)}, ...breakable(this.modules.short(row.module) || "no module"))},
      {name: "Category", value: (row) => row.category, cell: (row) => element("span", {}, named(categoryColour(row.category), row.category),
        row.detail ? element("span", {class: "quiet detail"}, ...breakable(row.detail)) : null)},
      {name: "Bytes", number: true, value: (row) => row.bytes, cell: (row) => bytesCell(row.bytes)},
      {name: "Share", number: true, value: (row) => row.bytes, cell: (row) => formatShare(row.bytes, this.total)},
    ], {most: 40, foot: () => element("tr", {}, element("th", {scope: "row", colspan: 2}, "allocated"),
                                      element("td", {class: "number"}, bytesCell(this.total)), element("td", {class: "number"}, "100.0%"))});
  }

  start() {
    showCoverage(this.run, this.all);
    showHead(this.run);
    showAlerts(this.run, this);
    showAnswer(this);
    showAdvice(this.run);
    showDiff(this.run);
    showAlike(this.run);
    showFigures(this.all);
    showHistogram(this.all);
    startRanks(this);
    showMissing(this.run, this);
    const select = document.getElementById("rank");
    select.append(...this.all.map((view) => element("option", {value: view.rank, disabled: !this.standFor(view.rank)},
      view.drawn ? `${view.rank}` : this.standFor(view.rank) ? `${view.rank} (as ${view.facts.representative})` : `${view.rank} (not drawn)`)));
    select.addEventListener("change", () => this.showRank(Number(select.value)));
    document.getElementById("module-filter").addEventListener("input", (event) => this.modules.filter(event.target.value));
    for (const button of document.querySelectorAll("[data-do]"))
      button.addEventListener("click", () => this.command(button.dataset.do));
    document.getElementById("time-area").addEventListener("keydown", (event) => this.key(event));
    startLook(() => this.redraw());
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth !== width) this.redraw();
      width = innerWidth;
    });
    for (const button of document.querySelectorAll("[data-compare]"))
      button.addEventListener("click", () => this.compare[button.dataset.compare]());
    this.open();
    this.heat.draw();
    offerPictures(this);
    const reading = new Place(this);
    reading.go(location.hash);
    this.reading = reading;
    document.getElementById("about").textContent = `Written by shardledger ${this.run.version}. Sizes are exact: hover a size for its bytes. Charts: uPlot 1.6.31, Copyright (c) 2022 Leon Sorokin, MIT licence.`;
  }

  // What people come for first: the moment at which memory ran out, else the highest peak. Only then the whole run.
  open() {
    const worst = this.ranks.reduce((a, b) => ((b.life?.allocated ?? -1) > (a.life?.allocated ?? -1) ? b : a));
    const fatal = this.run.oom.filter((oom) => this.byRank.get(oom.rank).drawn && this.byRank.get(oom.rank).facts.ended === "out of memory");
    const first = fatal.reduce((a, b) => (a === null || b.at < a.at ? b : a), null);
    this.showRank(first ? first.rank : worst.rank);
    if (first) this.showPlace(first.at, first.step);
    else if (this.view.life && this.view.life.step === null) this.showPlace(this.view.life.peak_at, null);
    else if (this.view.highest) this.showStep(this.view.highest);
  }

  // Of all ranks, so that a view of one is a view of the others, too.
  get span() {
    return [Math.min(...this.ranks.map((view) => Math.min(view.facts.start, view.memory.start))),
            Math.max(...this.ranks.map((view) => Math.max(view.facts.end, view.memory.end, view.facts.start + 1)))];
  }

  // Whose picture shows a rank: its own, that of its group's representative, or null.
  standFor(rank) {
    const asked = this.byRank.get(rank), view = asked.drawn ? asked : this.byRank.get(asked.facts.representative);
    return view?.drawn ? view : null;
  }

  showRank(rank) {
    const view = this.standFor(rank);
    const before = this.view;
    hideTip(); // it speaks of the rank before
    this.view = view;
    document.getElementById("rank").value = rank;
    document.getElementById("stand").textContent = view.rank === rank ? "" : `Rank ${rank} is alike rank ${view.rank}, whose picture stands for it. 'shardledger report --rank ${rank}' draws it.`;
    this.lanes.prepare(view, (id) => this.modules.name(id));
    this.steps.show(view, this.ranks.filter((other) => other !== view));
    this.device.show(view);
    showRanks(this);
    showCollectives(this.run, view);
    this.showHeld();
    this.legend();
    this.chart.view = view;
    if (this.chart.plot) this.chart.remake();
    // The same place on the other rank's time; at first, its peak.
    if (before && this.at !== undefined) {
      this.zoom(this.chart.from, this.chart.to);
      this.select(this.at);
      return;
    }
    this.whole();
    this.select(view.life?.peak_at ?? (view.recorded ? view.memory.highest().at : this.chart.to));
  }

  whole() {
    const [from, to] = this.span;
    this.zoom(from, to);
  }

  zoom(from, to) {
    const [first, last] = this.span;
    if (from === null) [from, to] = [first, last];
    const length = Math.max(100, Math.min(to - from, last - first));
    from = Math.min(Math.max(from, first), last - length);
    this.chart.show(this.view, from, from + length, this.at ?? from);
    this.lanes.draw();
    this.strips.show(this.ranks, this.view, this.chart.from, this.chart.to);
    this.describe();
    this.remember();
  }

  // The place in the page, once there is one that the reader chose.
  remember() {
    this.reading?.remember();
  }

  select(at) {
    const [first, last] = this.span;
    this.at = Math.min(Math.max(at, first), last);
    const step = stepAt(this.view, this.at);
    this.chart.moment = this.at;
    this.chart.plot.redraw(false);
    this.lanes.draw();
    this.showOwners(step);
    this.steps.choose(step);
    this.holders.show(this.view, this.at);
    this.allocations.show(this.view, this.at);
    this.segments.show(this.view, this.at);
    this.compare.show();
    this.remember();
    this.modules.show(this.view, step);
    this.device.select(this.at);
  }

  showStep(step) {
    const margin = (step.end - step.start) * 0.02;
    this.zoom(step.start - margin, step.end + margin);
    this.select(step.peak_at ?? step.start);
  }

  showMoment(rank, at, number) {
    this.showRank(rank);
    this.showPlace(at, number);
    document.getElementById("timeline").scrollIntoView();
  }

  // A moment with what led to it in its step, and a little of what followed.
  showPlace(at, number) {
    const step = number === null ? stepAt(this.view, at) : this.view.stepByNumber.get(number);
    const margin = step ? (at - step.start) * 0.3 : 5e7;
    if (step) this.zoom(step.start - margin, at + margin);
    else this.zoom(at - margin, at + margin);
    this.select(at);
  }

  describe() {
    const {from, to} = this.chart;
    // The margins of a step's view show a little of its neighbours: they don't count.
    const inside = this.view.steps.filter((step) => {
      const shared = Math.min(step.end, to) - Math.max(step.start, from);
      return shared > (to - from) * 0.05 || shared > (step.end - step.start) * 0.5;
    });
    const numbers = formatRuns(inside.map((step) => step.step));
    const words = inside.length ? `step${inside.length > 1 ? "s" : ""} ${numbers}` : "between steps";
    document.getElementById("strips-lead").textContent = `Allocated bytes over the time in view above (${words} of rank ${this.view.rank}), on one scale; at the end of each line its highest in view.${
      this.ranks.length < this.all.length ? ` ${this.ranks.length} of ${plural(this.all.length, "rank")}: those that stand for others, and those that stand out.` : ""}`;
    document.getElementById("view").textContent = `Rank ${this.view.rank} · ${words} · ${formatTime(to - from)}${
      this.chart.dense ? ", narrow steps at their highest" : ""}`;
  }

  showHeld() {
    const {windows} = this.view.memory;
    const steps = windows.filter((window) => window.step >= 0);
    const full = steps.filter((window) => window.full && window.repeats < 0);
    const repeats = steps.filter((window) => window.repeats >= 0);
    const sampled = steps.filter((window) => !window.full && window.repeats < 0);
    const parts = [];
    const listed = (found) => {
      const text = formatRuns(found.map((window) => window.step));
      return text.length > 80 ? plural(found.length, "step") : `step${found.length === 1 ? "" : "s"} ${text}`;
    };
    if (!this.view.recorded) parts.push("No allocations of tensors were recorded.");
    else if (!steps.length) parts.push("No steps were recorded; every allocation is in this page.");
    else if (!sampled.length && !repeats.length) parts.push("This page holds every allocation and free of every step.");
    else parts.push(`This page holds every allocation and free of ${listed(full)}.`);
    if (sampled.length) {
      const events = sampled.reduce((sum, window) => sum + window.events, 0), kept = sampled.reduce((sum, window) => sum + window.count, 0);
      parts.push(`Of ${plural(sampled.length, "other step")} it holds ${kept.toLocaleString("en-US")} of ${events.toLocaleString("en-US")} instants, each exact, the peak always among them; shardledger report --step N holds one of them in full.`);
    }
    if (repeats.length) parts.push(`${plural(repeats.length, "step")} repeat the allocations of an earlier one and are drawn from it (hatched), with the times stretched to their own length.`);
    const wrong = steps.filter((window) => window.difference !== 0);
    if (wrong.length) parts.push(`In ${listed(wrong)} the allocations in the ledger do not add up to its peak.`);
    if (this.view.facts.elsewhere) parts.push(`${plural(this.view.facts.elsewhere, "allocation")} of this rank on other GPUs are not drawn; shardledger device has them.`);
    document.getElementById("held").textContent = parts.join(" ");
  }

  legend() {
    document.getElementById("legend").replaceChildren(...this.layers.slice().reverse().map((layer) =>
      element("button", {type: "button", class: "plain", title: `The allocations of ${layer} at the chosen moment`, onclick: () => this.pick(layer)}, named(categoryColour(layer), layer))));
    document.getElementById("steps-lead").textContent = `What was allocated at the highest point of each step of rank ${this.view.rank}, by category; dashed: reserved by PyTorch${
      this.ranks.length > 1 ? `; thin lines: ${this.ranks.length < this.all.length ? "the peaks of the other ranks that are drawn" : "the other ranks’ peaks"}` : ""}. Click a step to see inside.`;
  }

  // A category that was clicked on the first screen: its allocations at the moment that the screen speaks of.
  pickCategory(category) {
    const [at] = this.run.answer_at;
    this.showMoment(at.rank, at.at, at.step);
    this.pick(category);
  }

  // The allocations that have all these words, at the chosen moment.
  pick(...words) {
    this.allocations.search(words.filter(Boolean).join(" "));
    this.remember();
  }

  chooseAllocation(id) {
    this.allocations.choose(id);
    this.remember();
  }

  // What was clicked in the lanes: the allocations of a phase, and of a collective its module's.
  pickLane(item) {
    const {allocations} = this;
    if (item.phase) {
      const {phase, origin} = item;
      allocations.showMade({from: phase.start, to: phase.end, tid: phase.tid, label: `${phase.name}${origin === undefined ? "" : ` of step ${origin}`}`});
    } else if (item.call) {
      allocations.made = null;
      allocations.find.value = [OPERATION_CATEGORY[item.call.operation], item.call.module && this.modules.name(item.call.module)].filter(Boolean).join(" ");
      allocations.draw();
    }
  }

  // When something was, in few words.
  instant(at) {
    const step = stepAt(this.view, at);
    return step ? `step ${step.step}, +${formatTime(at - step.start)}` : formatTime(at);
  }

  // Where a moment is, in words.
  place(at) {
    const step = stepAt(this.view, at);
    const then = atOrigin(this.view, at);
    const around = this.view.phases.filter((phase) => phase.start <= then && phase.end >= then && phase.kind !== "user");
    const inner = around.reduce((a, b) => (a === null || b.start >= a.start ? b : a), null);
    const module = inner && inner.module !== null ? this.modules.name(inner.module) : null;
    return {step, text: [step ? `step ${step.step}, +${formatTime(at - step.start)}` : `${formatTime(at)} into the run, between steps`,
                         inner ? `${inner.kind.replaceAll("_", " ")}${module ? ` of ${module}` : ""}` : null].filter(Boolean).join(" · ")};
  }

  showOwners(step) {
    const box = document.getElementById("moment"), {memory} = this.view;
    if (!this.view.recorded)
      return box.replaceChildren(element("h3", {}, "Alive at this moment"), element("div", {class: "quiet"}, this.place(this.at).text),
                                 element("p", {}, "Allocations of tensors were not recorded on this rank."));
    const owners = memory.ownersAt(this.at);
    this.total = owners.reduce((sum, owner) => sum + owner.bytes, 0);
    const [window] = memory.find(this.at);
    const {repeats, full} = memory.windows[window];
    const note = repeats >= 0 && step ? `Drawn from step ${memory.windows[repeats].step}, which step ${step.step} repeats.`
      : full ? null : "At the nearest held instant before this moment.";
    // A tag that came later holds for an allocation's whole life here, and not in what is summed up at the peak.
    const atPeak = step && this.at === step.peak_at ? this.view.atPeak(step) : null, held = memory.layersAt(this.at);
    const later = atPeak && this.layers.some((layer, i) => held[i] !== (atPeak.get(layer) || 0));
    box.replaceChildren(element("h3", {}, "Alive at this moment"), element("div", {class: "quiet", "aria-live": "polite"}, this.place(this.at).text),
                        element("div", {class: "total", "data-bytes": this.total, title: formatExact(this.total)}, formatBytes(this.total),
                                element("span", {class: "quiet", style: {fontSize: ".85rem", fontWeight: 400}}, `  ${formatExact(this.total)}`)),
                        note ? element("div", {class: "quiet"}, note) : "",
                        later ? element("div", {class: "quiet"}, "Some of it was tagged after this moment; Peak of every step has the categories of then.") : "",
                        this.owners.box);
    this.owners.all = false;
    this.owners.show(owners);
  }

  hoverMemory(at, event, bytes) {
    if (at === null) return hideTip();
    if (!this.view.recorded) return showTip(event, element("div", {}, this.place(at).text));
    const held = this.view.memory.layersAt(at);
    let sum = 0, here = null;
    this.layers.forEach((layer, i) => {
      sum += held[i];
      if (here === null && held[i] > 0 && bytes <= sum) here = layer;
    });
    const [window] = this.view.memory.find(at), {repeats, step} = this.view.memory.windows[window];
    showTip(event, element("b", {}, formatBytes(sum)), element("div", {class: "quiet"}, this.place(at).text),
            repeats >= 0 && step >= 0 ? element("div", {class: "quiet"}, `repeats step ${this.view.memory.windows[repeats].step}`) : null,
            categoryRows(this.layers.map((layer, i) => [layer, held[i]]), sum, here), this.largestOf(here, at));
  }

  // Who holds most of a category at a moment.
  largestOf(category, at) {
    if (category === null) return null;
    const owners = this.view.memory.ownersAt(at).filter((owner) => owner.category === category).slice(0, 3);
    return element("div", {class: "quiet"}, `${category}: ${owners.map((owner) => `${this.modules.short(owner.module) || "no module"}${
      owner.detail ? ` (${owner.detail})` : ""} ${formatBytes(owner.bytes)}`).join(", ")}`);
  }

  hoverLane(item, event) {
    if (!item) return hideTip();
    const length = formatTime(item.end - item.start);
    if (item.step)
      showTip(event, element("b", {}, `Step ${item.step.step}: ${length}`), element("div", {}, `peak ${formatBytes(item.step.allocated)}, ${item.step.place}`),
              item.step.same_as === null ? null : element("div", {class: "quiet"}, `repeats step ${item.step.same_as}`));
    else if (item.phase)
      showTip(event, element("b", {}, `${item.phase.kind.replaceAll("_", " ")}: ${formatTime(item.phase.end - item.phase.start)}`), element("div", {}, item.phase.name),
              item.phase.module === null ? null : element("div", {class: "quiet"}, this.modules.name(item.phase.module)),
              item.origin === undefined ? null : element("div", {class: "quiet"}, `as in step ${item.origin}, which this one repeats`),
              item.phase.open ? element("div", {class: "quiet"}, "still open when the log ended") : null);
    else
      showTip(event, element("b", {}, `${item.call.operation}: ${formatBytes(item.call.bytes)}`),
              element("div", {}, item.call.end === null ? "device times not recorded" : `${formatTime(item.call.end - item.call.start)} on the device, ${formatTime(item.call.start - item.call.enqueued)} after the call`),
              item.call.module === null ? null : element("div", {}, this.modules.name(item.call.module)),
              item.call.late > 0 ? element("div", {}, `started ${formatTime(item.call.late)} after the first rank`) : null,
              item.origin === undefined ? null : element("div", {class: "quiet"}, `as in step ${item.origin}, which this one repeats`),
              element("div", {class: "quiet"}, `${item.call.stream === null ? "" : `stream ${item.call.stream}, `}communicator ${item.call.comm ?? "not known"}, number ${item.call.seq ?? "not known"}`));
  }

  command(name) {
    hideTip(); // it speaks of what was under the pointer
    const {from, to} = this.chart, middle = this.at >= from && this.at <= to ? this.at : (from + to) / 2;
    const current = stepAt(this.view, this.at), {steps} = this.view;
    const near = lastNotAbove(steps.length, (n) => steps[n].start, this.at);
    const all = {
      whole: () => this.whole(),
      peak: () => this.view.highest && this.showStep(this.view.highest),
      previous: () => steps.length && this.showStep(steps[Math.max(0, current ? near - 1 : near)]),
      next: () => steps.length && this.showStep(steps[Math.min(steps.length - 1, near + 1)]),
      in: () => this.zoom(middle - (middle - from) * 0.5, middle + (to - middle) * 0.5),
      out: () => this.zoom(middle - (middle - from) * 2, middle + (to - middle) * 2),
      left: () => this.step(-1),
      right: () => this.step(1),
      rank: () => this.showRank(this.ranks[(this.ranks.indexOf(this.view) + 1) % this.ranks.length].rank),
    };
    all[name]();
  }

  // To the next sample, with the view moving along.
  step(direction) {
    const at = this.view.memory.neighbour(this.at, direction), {from, to} = this.chart;
    if (at < from || at > to) this.zoom(at - (to - from) / 2, at + (to - from) / 2);
    this.select(at);
  }

  key(event) {
    const keys = {"0": "whole", Home: "whole", p: "peak", n: "next", b: "previous", "+": "in", "=": "in", "-": "out", ArrowLeft: "left",
                  ArrowRight: "right", r: "rank"};
    const name = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.command(name);
  }

  redraw() {
    this.chart.remake();
    this.lanes.draw();
    this.heat.draw();
    this.strips.show(this.ranks, this.view, this.chart.from, this.chart.to);
    this.steps.show(this.view, this.ranks.filter((other) => other !== this.view));
    this.steps.choose(stepAt(this.view, this.at));
    showRanks(this);
    this.legend();
    this.showOwners(stepAt(this.view, this.at));
    this.holders.draw();
    this.allocations.show(this.view, this.at);
    this.segments.show(this.view, this.at);
    this.compare.show();
    this.device.show(this.view);
    this.device.select(this.at);
    showCollectives(this.run, this.view);
  }
}

async function main() {
  const waiting = document.getElementById("waiting");
  if (typeof DecompressionStream === "undefined") {
    waiting.textContent = "This browser is too old for this page: it needs one of 2023 or later (Chrome 80, Firefox 113, Safari 16.4).";
    return;
  }
  try {
    const run = await readData();
    document.getElementById("page").hidden = false;
    const app = new App(run);
    app.start();
    waiting.remove();
    window.shardledger = app; // for programs: window.shardledger.run has the tables
    // Painted, not only built: what was drawn before the next task is on the screen by then.
    requestAnimationFrame(() => setTimeout(() => (app.readyAfter = performance.now())));
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    waiting.textContent = `This page can’t be shown: ${error.message}. Make it again with 'shardledger report'.`;
    waiting.hidden = false;
    throw error;
  }
}

main();
