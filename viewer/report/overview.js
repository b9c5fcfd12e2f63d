"use strict";
// Everything around the timeline: first line, alerts, figures, steps, ranks, categories, modules, device, collectives.

function showCoverage(run, ranks, layers) {
  const lost = run.ranks.reduce((sum, rank) => sum + rank.lost, 0);
  let unattributed = 0, whole = 0;
  for (const view of ranks) {
    if (view.highest) {
      whole += view.highest.allocated || 0;
      unattributed += view.atPeak.get(view.highest.step)?.get("unattributed") || 0;
    } else if (view.memory.windows.length) { // no steps: the highest instant
      const {at, bytes} = view.memory.highest(), layer = layers.indexOf("unattributed");
      whole += bytes;
      unattributed += layer < 0 ? 0 : view.memory.layersAt(at)[layer];
    }
  }
  const line = document.getElementById("coverage");
  line.textContent = `${plural(lost, "event")} lost, ${plural(run.gaps.length, "gap")}; ${formatBytes(unattributed)} (${
    whole ? formatShare(unattributed, whole) : "0.0%"}) unattributed at the peak`;
  line.classList.toggle("loss", lost > 0 || run.gaps.length > 0 || unattributed > 0);
}

function showHead(run) {
  const source = run.meta.find((row) => row.key === "source_directory");
  const first = run.ranks[0], hosts = new Set(run.ranks.map((rank) => rank.host));
  const name = source ? source.value.replace(/\/+$/, "").split("/").pop() : "a run";
  document.getElementById("run").textContent = name;
  document.title = `${name} – ShardLedger report`;
  const devices = new Set(run.ranks.map((rank) => rank.device_name).filter(Boolean));
  const parts = [plural(run.ranks.length, "rank") + (first.world_size > run.ranks.length ? ` of ${first.world_size} recorded` : ""),
                 hosts.size > 1 ? plural(hosts.size, "host") : first.host, [...devices].join(", "),
                 first.torch_version && `PyTorch ${first.torch_version}`, first.nccl_version && `NCCL ${first.nccl_version}`,
                 first.allocator_config && `allocator ${first.allocator_config}`];
  document.getElementById("machine").textContent = parts.filter(Boolean).join(" · ");
}

// What went wrong stands before everything else.
function showAlerts(run, app) {
  const box = document.getElementById("alerts");
  const refused = run.oom.slice().sort((a, b) => a.at - b.at);
  for (const oom of refused.slice(0, 3))
    box.append(element("div", {class: "alert alarm", role: "alert"}, element("b", {}, `Out of memory: rank ${oom.rank}`),
      `${oom.step === null ? "" : ` in step ${oom.step}`}: ${formatBytes(oom.requested)} asked for by ${
        oom.source === "allocator" ? "PyTorch’s allocator" : oom.source}. ${formatBytes(oom.allocated)} allocated, ${
        formatBytes(oom.reserved)} reserved, largest free block ${formatBytes(oom.largest_free)}; ${
        formatBytes(oom.free)} of the device free.${oom.place ? ` In ${oom.place.replaceAll(" > ", " › ")}.` : ""} `,
      element("button", {type: "button", onclick: () => app.showMoment(oom.rank, oom.at, oom.step)}, "Show the moment")));
  if (refused.length > 3)
    box.append(element("div", {class: "alert alarm"}, `${plural(refused.length - 3, "more refused request")}: shardledger oom lists them.`));
  const cut = run.ranks.filter((rank) => rank.ended === "cut off");
  if (cut.length)
    box.append(element("div", {class: "alert"}, element("b", {}, `Rank ${formatRuns(cut.map((rank) => rank.rank))}: the log just stops.`),
                       " The process was killed, crashed, or is still running; what was recorded until then is here."));
  if (run.gaps.length) {
    const lost = run.gaps.reduce((sum, gap) => sum + gap.lost, 0);
    box.append(element("div", {class: "alert"}, element("b", {}, `${plural(run.gaps.length, "gap")} in the record`),
                       `, ${plural(lost, "event")} lost there: listed at the end of this page, marked in the timeline.`));
  }
  const blind = run.ranks.filter((rank) => rank.fidelity !== "bridge");
  if (blind.length)
    box.append(element("div", {class: "alert"}, `Rank ${formatRuns(blind.map((rank) => rank.rank))}: ${
      blind[0].fidelity === "history" ? "allocations were read from PyTorch’s history at step ends, without their thread"
                                      : "allocations of tensors were not recorded"}.`));
  const unchecked = run.steps.filter((step) => step.checked === 0);
  if (unchecked.length)
    box.append(element("div", {class: "alert"}, `In ${plural(unchecked.length, "step")} PyTorch’s own statistics differ from the ledger: rank ${
      unchecked[0].rank}, step ${unchecked[0].step} first.`));
}

function figure(name, value, note, title) {
  return element("div", {}, element("dt", {}, name), element("dd", {title}, element("b", {}, value), element("span", {class: "note"}, note)));
}

function showFigures(ranks) {
  const box = document.getElementById("figures");
  const known = ranks.filter((view) => view.highest);
  box.hidden = !known.length;
  if (!known.length) return;
  const worst = known.reduce((a, b) => (b.highest.allocated > a.highest.allocated ? b : a));
  const least = known.reduce((a, b) => (b.highest.allocated < a.highest.allocated ? b : a));
  const step = worst.highest, total = worst.facts.device_bytes;
  // The step in which a process died says nothing about growth.
  const ended = worst.facts.ended === "clean" ? worst.steps : worst.steps.slice(0, -1);
  const last = ended[ended.length - 1], second = ended[1];
  const growth = ended.length > 2 ? last.end_allocated - second.end_allocated : 0;
  const figures = [
    figure("Peak allocated", formatBytes(step.allocated), `rank ${worst.rank}, step ${step.step}, ${step.place}`, formatExact(step.allocated)),
    figure("Reserved by PyTorch then", formatBytes(step.reserved), step.reserved ? `${formatBytes(step.reserved - step.allocated)} more than allocated` : "not known", formatExact(step.reserved)),
    figure("Device in use", formatBytes(step.device), step.device && total ? `${formatShare(step.device, total)} of ${formatBytes(total)}, in that step` : "no sample", formatExact(step.device)),
    known.length > 1 ? figure("Lowest peak of all ranks", formatBytes(least.highest.allocated), `rank ${least.rank}, ${formatBytes(step.allocated - least.highest.allocated)} less`, formatExact(least.highest.allocated))
                     : null,
    ended.length > 2 ? figure("Growth since step " + second.step, `${growth > 0 ? "+" : ""}${formatBytes(growth)}`, `at step ends, up to step ${last.step}`, formatExact(growth)) : null];
  box.append(...figures.filter(Boolean));
}

// Peaks of all steps by category; a click goes to the step.
class StepsChart {
  constructor(box, layers, onStep) {
    Object.assign(this, {box, layers, onStep, plot: null});
  }

  show(view, others) {
    Object.assign(this, {view, others});
    if (this.plot) this.plot.destroy();
    this.plot = null;
    const steps = view.steps.filter((step) => step.allocated !== null);
    this.box.parentElement.hidden = !steps.length;
    if (!steps.length) return;
    const x = steps.map((step) => step.step), sums = this.layers.map(() => new Array(steps.length));
    steps.forEach((step, i) => {
      let sum = 0;
      const held = view.atPeak.get(step.step);
      this.layers.forEach((layer, n) => (sums[n][i] = sum += held?.get(layer) || 0));
    });
    const lines = ["reserved", "device"].map((what) => steps.map((step) => step[what]));
    const elsewhere = others.map((other) => steps.map((step) => other.stepByNumber.get(step.step)?.allocated ?? null));
    // The device's total is mostly far above: the axis is for what PyTorch holds.
    this.top = Math.max(...steps.map((step) => Math.max(step.allocated, step.reserved || 0)), ...elsewhere.flat());
    const fills = this.layers.map(categoryColour).reverse();
    const bars = uPlot.paths.bars({size: [0.86, 46], gap: 0});
    const axis = {stroke: colour("--quiet"), font: cssFont(12), ticks: {show: false}, grid: {stroke: colour("--grid"), width: 1}};
    const width = Math.max(280, this.box.clientWidth);
    this.plot = new uPlot({
      width, height: 190, padding: [10, 12, 0, 0], legend: {show: false},
      scales: {x: {time: false, range: () => [x[0] - 0.5, x[x.length - 1] + 0.5]}, y: {range: () => [0, this.top * 1.06]}},
      series: [{}, ...fills.map((fill) => ({fill, stroke: fill, width: 0, paths: bars, points: {show: false}})),
               {stroke: colour("--ink"), width: 1.5, dash: [5, 4], points: {show: steps.length < 40, size: 4, fill: colour("--ink")}},
               {show: false},
               ...elsewhere.map(() => ({stroke: colour("--quiet"), width: 1, points: {show: false}}))],
      axes: [{...axis, size: 30, grid: {show: false}, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000],
              values: (u, ticks) => ticks.map((n) => (Number.isInteger(n) ? `${n}` : ""))},
             {...axis, size: GUTTER, splits: (u, i, min, max) => byteTicks(max, 4), values: (u, ticks) => ticks.map(formatTick)}],
      cursor: {y: false, points: {show: false}, drag: {x: false, y: false}},
      hooks: {draw: [(u) => this.drawChosen(u)]},
    }, [x, ...sums.slice().reverse(), ...lines, ...elsewhere], this.box);
    this.plot.over.addEventListener("mousemove", (event) => this.moved(event));
    this.plot.over.addEventListener("mouseleave", hideTip);
    this.plot.over.addEventListener("click", (event) => {
      const step = this.stepUnder(event);
      if (step) this.onStep(step);
    });
  }

  stepUnder(event) {
    const left = event.clientX - this.plot.over.getBoundingClientRect().left;
    return this.view.stepByNumber.get(Math.round(this.plot.posToVal(left, "x")));
  }

  moved(event) {
    const step = this.stepUnder(event);
    if (!step) return hideTip();
    const held = this.view.atPeak.get(step.step) || new Map();
    showTip(event, element("b", {}, `Step ${step.step}: peak ${formatBytes(step.allocated)}`),
            element("div", {}, `${formatExact(step.allocated)}, ${step.place}`),
            element("div", {class: "quiet"}, `reserved ${formatBytes(step.reserved)} · device ${formatBytes(step.device)}`),
            step.same_as === null ? null : element("div", {class: "quiet"}, `repeats step ${step.same_as}`),
            categoryRows(this.layers.map((layer) => [layer, held.get(layer) || 0]), step.allocated, null));
  }

  choose(step) {
    this.chosen = step;
    if (this.plot) this.plot.redraw(false);
  }

  drawChosen(u) {
    if (!this.chosen) return;
    const {ctx, bbox} = u, left = u.valToPos(this.chosen.step - 0.5, "x", true), right = u.valToPos(this.chosen.step + 0.5, "x", true);
    ctx.save();
    ctx.fillStyle = colour("--ink");
    ctx.fillRect(left, bbox.top + bbox.height, Math.max(right - left, 2), 3 * devicePixelRatio);
    ctx.restore();
  }
}

// Rows of a tooltip: categories with bytes from the top of the stack down; the one under the pointer stands out.
function categoryRows(pairs, whole, here) {
  const rows = pairs.filter(([, bytes]) => bytes > 0).reverse();
  return element("table", {}, element("tbody", {}, ...rows.map(([name, bytes]) =>
    element("tr", {class: name === here ? "here" : null}, element("td", {}, swatch(categoryColour(name)), name),
            element("td", {class: "number"}, formatBytes(bytes)), element("td", {class: "number"}, formatShare(bytes, whole))))));
}

function showRanks(ranks, layers, app) {
  const box = document.getElementById("ranks");
  const known = ranks.filter((view) => view.highest);
  box.parentElement.hidden = !known.length;
  if (!known.length) return;
  const most = Math.max(...known.map((view) => view.highest.allocated));
  const holds = (view, layer) => view.atPeak.get(view.highest.step)?.get(layer) || 0;
  const bars = plainTable(["Rank", "", "Peak", "Step", "Where", "Reserved", "Device", "Ended"], known.map((view) => [
    element("button", {type: "button", "aria-pressed": view === app.view, onclick: () => app.showRank(view.rank)}, `${view.rank}`),
    stackedBar(layers.map((layer) => ({bytes: holds(view, layer), fill: categoryColour(layer), name: layer})), most),
    bytesCell(view.highest.allocated), `${view.highest.step}`, view.highest.place, bytesCell(view.highest.reserved),
    bytesCell(view.highest.device), view.facts.ended]), [2, 3, 5, 6]);
  bars.classList.add("bars");
  const shown = layers.filter((layer) => known.some((view) => holds(view, layer) > 0));
  shown.sort((a, b) => holds(app.view, b) - holds(app.view, a));
  const total = app.view.highest ? app.view.highest.allocated : 0;
  const categories = plainTable(["At the peak", ...known.map((view) => `Rank ${view.rank}`), `Share on ${app.view.rank}`],
    shown.map((layer) => [element("span", {}, swatch(categoryColour(layer)), layer), ...known.map((view) => bytesCell(holds(view, layer))),
                          formatShare(holds(app.view, layer), total)]), [...known.map((_, i) => i + 1), known.length + 1]);
  categories.append(element("tfoot", {}, element("tr", {}, element("th", {scope: "row"}, "allocated"),
    ...known.map((view) => element("td", {class: "number"}, bytesCell(view.highest.allocated))), element("td", {class: "number"}, "100.0%"))));
  box.replaceChildren(element("div", {class: "scroll"}, bars), element("div", {class: "scroll", id: "categories", style: {marginTop: "14px"}}, categories));
}

// ---- modules ----

class ModulesTable {
  constructor(box, modules) {
    this.modules = new Map(modules.map((module) => [module.id, module]));
    this.find = "";
    const bytes = (name, key, help) => ({name, help, number: true, value: (row) => row[key], cell: (row) => (row[key] === null ? "–" : bytesCell(row[key]))});
    this.table = new SortedTable(box, [
      {name: "Module", help: "Sort by name: the tree", value: (row) => row.order,
       cell: (row, tree) => element("span", {class: "fqn", title: row.module.name,
                                             style: tree ? {paddingLeft: `${row.depth * 1.1}em`} : {}},
                                    this.label(row, tree), row.module.is_fsdp ? element("span", {class: "quiet"}, " FSDP") : null)},
      {name: "Class", value: (row) => row.module.class || "", cell: (row) => row.module.class || ""},
      bytes("Forward", "forward", "The whole device's peak while the module ran forward"),
      bytes("Backward", "backward", "The whole device's peak while the module ran backward"),
      bytes("Own", "own", "The most that the module itself owned"),
      bytes("With children", "whole", "The most that it and all modules below it owned at one instant"),
      bytes("Parameters", "params", "Parameters on this rank, children included"),
      bytes("Buffers", "buffers", "Buffers on this rank, children included"),
    ], {most: 60, natural: true});
  }

  label(row, tree) {
    if (row.module.fqn === "") return row.module.class || "(root)";
    return tree && row.above && row.above.module.fqn ? row.module.fqn.slice(row.above.module.fqn.length + 1) : row.module.fqn;
  }

  // Each row with the nearest module above it that has a row.
  nest(rows) {
    for (const row of rows.values()) {
      let above = row.module.parent;
      while (above !== null && !rows.has(above)) above = this.modules.get(above)?.parent ?? null;
      row.above = above === null ? null : rows.get(above);
    }
    for (const row of rows.values()) {
      row.depth = 0;
      for (let above = row.above; above; above = above.above) row.depth++;
    }
  }

  name(id) {
    const module = this.modules.get(id);
    return module ? module.name || module.fqn || module.class || "(root)" : null;
  }

  // Without the root's class, where names are many and room is little.
  short(id) {
    const module = this.modules.get(id);
    return module ? module.fqn || module.class || "(root)" : null;
  }

  // The step's modules, or those of the step that it repeats, or those of the rank's highest step.
  show(view, step) {
    const wanted = [step?.step, step?.same_as, view.highest?.step, view.highest?.same_as].find((n) => view.peaks.has(n));
    const lead = document.getElementById("modules-lead");
    this.table.box.parentElement.hidden = ![...this.modules.values()].some((module) => module.rank === view.rank);
    if (wanted === undefined) {
      lead.textContent = "No module’s peaks are in this page.";
      this.table.show([]);
      return;
    }
    const asked = step ? step.step : wanted;
    lead.textContent = `Peaks on rank ${view.rank} in step ${wanted}${wanted === asked ? "" : step.same_as === wanted
      ? `, which step ${asked} repeats` : ` (those of step ${asked} are not in this page: shardledger report --step ${asked})`}. Forward and Backward: the whole device while the module ran. Own: what the module itself owned.`;
    const rows = new Map();
    for (const peak of view.peaks.get(wanted)) {
      const row = rows.get(peak.module) || {module: this.modules.get(peak.module), forward: null, backward: null, own: null, whole: null};
      if (peak.phase === "forward" || peak.phase === "backward") row[peak.phase] = peak.allocated;
      row.own = Math.max(row.own, peak.own);
      row.whole = Math.max(row.whole, peak.whole);
      rows.set(peak.module, row);
    }
    this.without = 0;
    for (const module of this.modules.values())
      if (module.rank === view.rank && !rows.has(module.id)) {
        this.without++;
        if (this.everything) rows.set(module.id, {module, forward: null, backward: null, own: null, whole: null});
      }
    this.shown = [view, step];
    this.nest(rows);
    const found = [...rows.values()];
    found.sort((a, b) => a.module.id - b.module.id);
    found.forEach((row, i) => Object.assign(row, {order: i, params: row.module.params, buffers: row.module.buffers}));
    this.rows = found;
    this.filter(this.find);
  }

  filter(text) {
    this.find = text;
    const words = text.toLowerCase();
    this.table.show((this.rows || []).filter((row) => `${row.module.fqn} ${row.module.class}`.toLowerCase().includes(words)));
    if (this.without)
      this.table.box.append(element("button", {type: "button", class: "more", onclick: () => {
        this.everything = !this.everything;
        this.show(...this.shown);
      }}, this.everything ? "Hide modules without a peak" : `Show ${plural(this.without, "module")} without a peak of their own`));
  }
}

// ---- device, collectives, what is missing ----

const DEVICE_COLOURS = {allocated: "#009e73", cublas_workspace: "#73c9a8", cached: "#5ab4e5", nccl: "#d55e00", cublas: "#e69f00",
                        cuda_context: "#4a5a68", context_and_code: "#4a5a68", gpu_code: "#98a1ab", other_processes: "#b1568a"};

function showDevice(run, view, at) {
  const box = document.getElementById("device"), lead = document.getElementById("device-lead");
  box.parentElement.hidden = !run.device_samples.length;
  const i = Math.max(0, lastNotAbove(view.samples.length, (n) => view.samples[n].at, at));
  const next = view.samples[i + 1];
  const sample = next && next.at - at < Math.abs(at - view.samples[i].at) ? next : view.samples[i];
  if (!sample) {
    lead.textContent = `The device was not sampled on rank ${view.rank}.`;
    box.replaceChildren();
    return;
  }
  const first = view.balance.get(view.samples[0].at) || [], step = stepAt(view, sample.at);
  const owners = view.balance.get(sample.at) || [];
  const meaning = new Map(run.device_meaning.map((row) => [row.owner, row.meaning]));
  const order = [...meaning.keys()];
  owners.sort((a, b) => order.indexOf(a.owner) - order.indexOf(b.owner));
  const fill = (owner) => DEVICE_COLOURS[owner] || (owner === "unexplained" ? colour("--ink") : "#a793d1");
  lead.textContent = `${formatBytes(sample.used)} of ${formatBytes(sample.total)} in use on rank ${view.rank}${
    step ? `, sampled in step ${step.step}` : ""}: the sample nearest to the selected moment.`;
  const most = Math.max(...view.samples.map((row) => row.used));
  const trend = element("div", {class: "thin trend"}, ...view.samples.slice(-60).map((row) => {
    const where = stepAt(view, row.at);
    return element("div", {class: row === sample ? "here" : null}, element("span", {class: "quiet"}, where ? `step ${where.step}` : "outside"),
      stackedBar((view.balance.get(row.at) || []).slice().sort((a, b) => order.indexOf(a.owner) - order.indexOf(b.owner))
        .map((owner) => ({bytes: owner.bytes, fill: fill(owner.owner), name: owner.owner})), most),
      element("span", {class: "number"}, bytesCell(row.used)));
  }));
  const table = plainTable(["Owner", "Bytes", "Share", "Since the first sample", "What it is"], owners.map((row) => {
    const before = first.find((other) => other.owner === row.owner)?.bytes || 0, change = row.bytes - before;
    return [element("span", {}, swatch(fill(row.owner)), row.owner), bytesCell(row.bytes), formatShare(row.bytes, sample.used),
            element("span", {title: formatExact(change)}, change === 0 ? "–" : `${change > 0 ? "+" : ""}${formatBytes(change)}`),
            element("span", {class: "quiet"}, meaning.get(row.owner) || "")];
  }), [1, 2, 3]);
  table.append(element("tfoot", {}, element("tr", {}, element("th", {scope: "row"}, "used"), element("td", {class: "number"}, bytesCell(sample.used)),
                                            element("td", {class: "number"}, "100.0%"), element("td"), element("td", {class: "quiet"}, meaning.get("used") || ""))));
  box.replaceChildren(element("div", {class: "scroll"}, table), trend);
}

function showCollectives(run, view) {
  const box = document.getElementById("collectives"), lead = document.getElementById("collectives-lead");
  const totals = run.collective_totals.filter((row) => row.rank === view.rank);
  box.parentElement.hidden = !run.collective_totals.length;
  const calls = totals.reduce((sum, row) => sum + row.calls, 0);
  lead.textContent = `${plural(calls, "NCCL call")} on rank ${view.rank}; ${view.collectives.length === calls ? "all" : view.collectives.length.toLocaleString("en-US")
    } in the timeline above. shardledger nccl has bandwidths and stragglers.`;
  const late = groupBy(view.collectives.filter((call) => call.late !== null), "operation");
  box.replaceChildren(plainTable(["Operation", "Calls", "Bytes", "Time on the device", "Latest start, in the timeline"], totals.map((row) => [
    element("span", {}, swatch(operationColour(row.operation)), row.operation), row.calls.toLocaleString("en-US"), bytesCell(row.bytes),
    row.timed ? formatTime(row.busy) : "not recorded",
    late.has(row.operation) ? `${formatTime(Math.max(...late.get(row.operation).map((call) => call.late)))} after the first rank` : "–"]), [1, 2, 3, 4]));
}

function showMissing(run, app) {
  const box = document.getElementById("missing");
  const gaps = run.gaps.map((gap) => [
    element("button", {type: "button", onclick: () => app.showMoment(gap.rank, gap.at, null)}, formatTime(gap.at)), `${gap.rank}`,
    gap.source, gap.lost ? gap.lost.toLocaleString("en-US") : "not known", gap.reason]);
  const off = run.sources.map((source) => ["", `${source.rank}`, source.source, "", `${source.state}: ${source.reason}`]);
  if (!gaps.length && !off.length) box.replaceChildren(element("p", {}, "Nothing: no gaps, and every source of the record was on."));
  else box.replaceChildren(plainTable(["At", "Rank", "Source", "Events lost", "Why"], [...gaps, ...off], [3]));
}

// ---- tooltip ----

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
