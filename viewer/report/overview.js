"use strict";
// Everything around the timeline: first line, alerts, figures, steps, ranks, categories, modules, device, collectives.

function showCoverage(run, ranks, layers) {
  const lost = run.ranks.reduce((sum, rank) => sum + rank.lost, 0);
  let unattributed = 0, whole = 0;
  for (const view of ranks) {
    if (view.highest) {
      whole += view.highest.allocated || 0;
      unattributed += view.atPeak(view.highest).get("unattributed") || 0;
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

function rankWords(ranks) {
  return `Rank${ranks.length > 1 ? "s" : ""} ${formatRuns(ranks.map((one) => one.rank))}`;
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
    box.append(element("div", {class: "alert"}, element("b", {}, `${rankWords(cut)}: the log just stops.`),
                       " The process was killed, crashed, or is still running; what was recorded until then is here."));
  if (run.gaps.length) {
    const lost = run.gaps.reduce((sum, gap) => sum + gap.lost, 0);
    box.append(element("div", {class: "alert"}, element("b", {}, `${plural(run.gaps.length, "gap")} in the record`),
                       `, ${plural(lost, "event")} lost there: listed at the end of this page, marked in the timeline.`));
  }
  const blind = app.ranks.filter((view) => !view.recorded), coarse = run.ranks.filter((rank) => rank.fidelity === "history");
  if (blind.length)
    box.append(element("div", {class: "alert"}, element("b", {}, `${rankWords(blind)}: allocations of tensors were not recorded.`),
                       " What is missing, and why, is at the end of this page."));
  if (coarse.length)
    box.append(element("div", {class: "alert"}, `${rankWords(coarse)}: allocations were read from PyTorch’s history at step ends, without their thread.`));
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
  const ended = (worst.facts.ended === "clean" ? worst.steps : worst.steps.slice(0, -1)).filter((one) => one.end_allocated !== null);
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
    const bars = uPlot.paths.bars({size: [0.86, 60], gap: 0});
    const axis = {stroke: colour("--quiet"), font: cssFont(12), ticks: {show: false}, grid: {stroke: colour("--grid"), width: 1}};
    this.plot = new uPlot({
      width: Math.max(280, this.box.clientWidth), height: this.height, padding: [10, 12, 0, 0], legend: {show: false},
      scales: {x: {time: false, range: () => [rows[0].x - 0.5, rows[rows.length - 1].x + 0.5]}, y: {range: () => [0, this.top * 1.06]}},
      series: [{}, ...layers.map(({fill}) => ({fill, stroke: fill, width: 0, paths: bars, points: {show: false}})).reverse(),
               ...lines.map((line) => ({width: 1.25, points: {show: rows.length < 40 && !!line.dash, size: 5, fill: line.stroke}, ...line}))],
      axes: [{...axis, size: 30, grid: {show: false}, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000],
              values: (u, ticks) => ticks.map((x) => (Number.isInteger(x) ? label(x) : ""))},
             {...axis, size: GUTTER, splits: (u, i, min, max) => byteTicks(max, 4), values: (u, ticks) => ticks.map(formatTick)}],
      cursor: {y: false, points: {show: false}, drag: {x: false, y: false}},
      hooks: {draw: [(u) => this.drawChosen(u)]},
    }, [rows.map((row) => row.x), ...sums.slice().reverse(), ...series], this.box);
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

function showRanks(ranks, layers, app) {
  const box = document.getElementById("ranks");
  const known = ranks.filter((view) => view.highest);
  box.parentElement.hidden = !known.length;
  if (!known.length) return;
  const most = Math.max(...known.map((view) => view.highest.allocated));
  const holds = (view, layer) => view.atPeak(view.highest).get(layer) || 0;
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
    shown.map((layer) => [named(categoryColour(layer), layer), ...known.map((view) => bytesCell(holds(view, layer))),
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
      this.table.box.parentElement.hidden = true;
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

// PyTorch's in blue, libraries' in orange, CUDA's own in grey.
const DEVICE_COLOURS = {allocated: "#0b5c9e", cublas_workspace: "#3f8cc9", pending: "#74b3de", cached: "#a8d2ee", private_pools: "#c9e4f5",
                        pytorch: "#0b5c9e", pytorch_other: "#74b3de", nccl: "#d55e00", cublas: "#e69f00", cudnn: "#f3cf78",
                        driver_pools: "#8b7bb8", cuda_context: "#4a5a68", context_and_code: "#4a5a68", gpu_code: "#98a1ab",
                        other_processes: "#b1568a"};

// Who holds the device: the sample nearest to the selected moment, and all samples of the rank.
class DevicePart {
  constructor(run, box, onMoment) {
    this.meaning = new Map(run.device_meaning.map((row) => [row.owner, row.meaning]));
    this.owners = [...this.meaning.keys()].filter((owner) => owner !== "used");
    this.table = element("div", {class: "scroll"});
    this.chart = element("div", {class: "chart"});
    box.append(this.table, this.chart);
    box.parentElement.hidden = !run.device_samples.length;
    this.bars = new StackedBars(this.chart, 170, {
      select: (row) => onMoment(row.sample.at),
      tip: (row, event) => showTip(event, element("b", {}, `${formatBytes(row.sample.used)} in use, in ${this.where(row.sample)}`),
        partRows(this.owners.map((owner, i) => [owner, row.parts[i], this.fill(owner)]), row.sample.used))});
  }

  fill(owner) {
    return DEVICE_COLOURS[owner] || (owner === "unexplained" ? colour("--ink") : "#a793d1");
  }

  where(sample) {
    const step = stepAt(this.view, sample.at);
    return step ? `step ${step.step}` : `no step, ${formatTime(sample.at)} into the run`;
  }

  show(view) {
    this.view = view;
    const rows = view.samples.map((sample, x) => {
      const held = new Map((view.balance.get(sample.at) || []).map((row) => [row.owner, row.bytes]));
      return {x, sample, parts: this.owners.map((owner) => Math.max(0, held.get(owner) || 0)), lines: []};
    });
    this.bars.show(rows, this.owners.map((owner) => ({fill: this.fill(owner)})), [], (x) => {
      const step = view.samples[x] && stepAt(view, view.samples[x].at);
      return step ? `step ${step.step}` : "";
    });
  }

  select(at) {
    const {view} = this, lead = document.getElementById("device-lead");
    // Of the same step if there is one, which was mostly taken at the step's end; else the nearest.
    const step = stepAt(view, at);
    const distance = (sample) => Math.abs(sample.at - at) + (step && stepAt(view, sample.at) !== step ? step.end - step.start : 0);
    let i = Math.max(0, lastNotAbove(view.samples.length, (n) => view.samples[n].at, at));
    if (view.samples[i + 1] && distance(view.samples[i + 1]) < distance(view.samples[i])) i++;
    const sample = view.samples[i];
    if (!sample) {
      lead.textContent = `The device was not sampled on rank ${view.rank}.`;
      this.table.replaceChildren();
      return;
    }
    this.bars.choose(i);
    lead.textContent = `${formatBytes(sample.used)} of ${formatBytes(sample.total)} in use on rank ${view.rank}, sampled in ${this.where(sample)}. Click a bar for another sample.`;
    const sum = (view.balance.get(sample.at) || []).reduce((all, row) => all + row.bytes, 0);
    if (sum !== sample.used) lead.textContent += ` What is known of the owners adds up to ${formatBytes(sum)}: they were not all measured in the same instant.`;
    const first = view.balance.get(view.samples[0].at) || [];
    const owners = (view.balance.get(sample.at) || []).slice().sort((a, b) => this.owners.indexOf(a.owner) - this.owners.indexOf(b.owner));
    const table = plainTable(["Owner", "Bytes", "Share", "Since the first sample", "What it is"], owners.map((row) => {
      const before = first.find((other) => other.owner === row.owner)?.bytes || 0, change = row.bytes - before;
      return [named(this.fill(row.owner), row.owner), bytesCell(row.bytes), formatShare(row.bytes, sample.used),
              element("span", {title: formatExact(change)}, change === 0 ? "–" : `${change > 0 ? "+" : ""}${formatBytes(change)}`),
              element("span", {class: "quiet"}, this.meaning.get(row.owner) || "")];
    }), [1, 2, 3]);
    table.append(element("tfoot", {}, element("tr", {}, element("th", {scope: "row"}, "used"), element("td", {class: "number"}, bytesCell(sample.used)),
                                              element("td", {class: "number"}, "100.0%"), element("td"), element("td", {class: "quiet"}, this.meaning.get("used") || ""))));
    this.table.replaceChildren(table);
  }
}

function showCollectives(run, view) {
  const box = document.getElementById("collectives"), lead = document.getElementById("collectives-lead");
  // Those with rows, and the sums of steps that left theirs to the step that they repeat.
  const totals = new Map();
  for (const row of [...run.collective_totals, ...run.collective_repeats].filter((one) => one.rank === view.rank)) {
    const sum = totals.get(row.operation) || {operation: row.operation, calls: 0, bytes: 0, busy: 0, timed: 0};
    for (const key of ["calls", "bytes", "busy", "timed"]) sum[key] += row[key];
    totals.set(row.operation, sum);
  }
  box.parentElement.hidden = !run.collective_totals.length;
  const calls = [...totals.values()].reduce((sum, row) => sum + row.calls, 0);
  lead.textContent = `${plural(calls, "NCCL call")} on rank ${view.rank}; ${view.collectives.length === calls ? "all" : view.collectives.length.toLocaleString("en-US")
    } with their own place in the timeline above. shardledger nccl has bandwidths and stragglers.`;
  const late = groupBy(view.collectives.filter((call) => call.late !== null), "operation");
  box.replaceChildren(plainTable(["Operation", "Calls", "Bytes", "Time on the device", "Latest start, in the timeline"], [...totals.values()].map((row) => [
    named(operationColour(row.operation), row.operation), row.calls.toLocaleString("en-US"), bytesCell(row.bytes),
    row.timed ? formatTime(row.busy) : "not recorded",
    late.has(row.operation) ? `${formatTime(Math.max(...late.get(row.operation).map((call) => call.late)))} after the first rank` : "–"]), [1, 2, 3, 4]));
}

function showMissing(run, app) {
  const box = document.getElementById("missing");
  const rows = [...run.gaps, ...run.sources.map((source) => ({...source, at: null, lost: null, reason: `${source.state}: ${source.reason}`}))];
  if (!rows.length) {
    box.replaceChildren(element("p", {}, "Nothing: no gaps, and every source of the record was on."));
    return;
  }
  new SortedTable(box, [
    {name: "At", number: true, value: (row) => row.at, cell: (row) => (row.at === null ? "" :
      element("button", {type: "button", onclick: () => app.showMoment(row.rank, row.at, null)}, formatTime(row.at)))},
    {name: "Rank", number: true, value: (row) => row.rank, cell: (row) => `${row.rank}`},
    {name: "Source", value: (row) => row.source},
    {name: "Events lost", number: true, value: (row) => row.lost,
     cell: (row) => (row.lost === null ? "" : row.lost ? row.lost.toLocaleString("en-US") : "not known")},
    {name: "Why", value: (row) => row.reason},
  ], {most: 100}).show(rows);
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
