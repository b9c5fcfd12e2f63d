"use strict";
// First line, alerts and figures; ranks side by side, collectives, what is missing.

// What no rule covers at the peaks of all ranks: {bytes, whole}.
function unattributedOf(ranks) {
  const sum = (of) => ranks.reduce((all, view) => all + of(view), 0);
  return {bytes: sum((view) => view.heldAtPeak.get("unattributed") || 0), whole: sum((view) => view.life?.allocated || 0)};
}

function showCoverage(run, ranks) {
  const lost = run.ranks.reduce((sum, rank) => sum + rank.lost, 0), {bytes: unattributed, whole} = unattributedOf(ranks);
  const line = document.getElementById("coverage");
  const reduced = run.ranks.filter((rank) => rank.fidelity === "history").length;
  const taken = run.ranks.some((rank) => rank.fidelity === "snapshot");
  const some = reduced < run.ranks.length ? ` on ${reduced} of ${plural(run.ranks.length, "rank")}` : "";
  const {run: which, missing: absent, rehearsal} = run.coverage[0], all = Math.max(...run.ranks.map((rank) => rank.world_size));
  line.textContent = `${which ? `${which}; ` : ""}${rehearsal ? `${rehearsal}; ` : ""}${taken ? "from PyTorch's memory snapshot; " : ""}${absent ? `${run.ranks.length} of ${plural(all, "rank")}, missing: ${absent}; ` : ""}${reduced ? `reduced: allocations read from PyTorch's history${some}; ` : ""}${plural(lost, "event")} lost, ${plural(run.gaps.length, "gap")}; ${formatBytes(unattributed)} (${
    whole ? formatShare(unattributed, whole) : "0.0%"}) unattributed at the peak`;
  line.classList.toggle("loss", Boolean(absent) || reduced > 0 || lost > 0 || run.gaps.length > 0 || unattributed > 0);
}

function showHead(run) {
  const source = run.meta.find((row) => row.key === "source_directory");
  const first = run.ranks[0], hosts = new Set(run.ranks.map((rank) => rank.host));
  const name = source ? source.value.replace(/\/+$/, "").split("/").pop() : "a run";
  document.getElementById("run").textContent = name;
  document.title = `${name} – ShardLedger report`;
  const devices = new Set(run.ranks.map((rank) => rank.device_name).filter(Boolean));
  const parts = [plural(run.ranks.length, "rank") + (first.world_size > run.ranks.length ? ` of ${first.world_size} ${run.coverage[0].rehearsal ? "rehearsed" : "recorded"}` : ""),
                 hosts.size > 1 ? plural(hosts.size, "host") : first.host, [...devices].join(", "),
                 first.torch_version && `PyTorch ${first.torch_version}`, first.nccl_version && `NCCL ${first.nccl_version}`,
                 first.allocator_config && `allocator ${first.allocator_config}`];
  document.getElementById("machine").textContent = parts.filter(Boolean).join(" · ");
}

function rankWords(ranks) {
  return `Rank${ranks.length > 1 ? "s" : ""} ${formatRuns(ranks.map((one) => one.rank))}`;
}

// Refused requests of which all figures are the same are one, with their ranks.
function refusedGroups(run) {
  const same = ({step, requested, wanted, allocated, reserved, largest_free: largest, free, source, place, line}) => JSON.stringify([step, requested, wanted, allocated, reserved, largest, free, source, place, line]);
  const refused = run.oom.slice().sort((a, b) => a.at - b.at).map((oom) => ({...oom, group: same(oom)}));
  return [...groupBy(refused, "group").values()];
}

// Of the one that the verdict speaks of, what that does not say.
function requestWords(run, oom) {
  const [at] = run.answer_at, isAnswer = at?.kind === "refused" && at.rank === oom.rank && at.at === oom.at;
  const asked = `${formatBytes(oom.requested)} asked for by ${oom.source === "allocator" ? "PyTorch’s allocator" : oom.source}${
    oom.wanted === oom.requested ? "" : ` (its message says ${formatBytes(oom.wanted)}, the segment for it)`}. `;
  const unable = linesOf(run.answer.death).find((line) => line.startsWith("its blocks that"));
  return `${isAnswer ? "" : asked}${formatBytes(oom.allocated)} allocated, ${formatBytes(oom.reserved)} reserved, largest free block ${
    formatBytes(oom.largest_free)}${isAnswer && unable ? ` (${unable})` : ""}; ${formatBytes(oom.free)} of the device free.`;
}

// What went wrong stands before everything else.
function showAlerts(run, app) {
  const box = document.getElementById("alerts"), groups = refusedGroups(run);
  for (const [oom, ...others] of groups.slice(0, 3)) {
    const ranks = formatRuns([...new Set([oom, ...others].map((one) => one.rank))].sort((a, b) => a - b));
    box.append(element("div", {class: "alert alarm", role: "alert"}, element("b", {}, `Out of memory: rank${/^\d+$/.test(ranks) ? "" : "s"} ${ranks}`),
      `${oom.step === null ? "" : ` in step ${oom.step}`}: ${requestWords(run, oom)}${oom.place ? ` In ${oom.place.replaceAll(" > ", " › ")}.` : ""}${oom.line ? ` Asked for at ${oom.line}.` : ""} `,
      app.byRank.get(oom.rank).drawn ? element("button", {type: "button", onclick: () => app.showMoment(oom.rank, oom.at, oom.step)}, "Show the moment") : ""));
  }
  const rest = groups.slice(3).reduce((sum, group) => sum + group.length, 0);
  if (rest) box.append(element("div", {class: "alert alarm"}, `${plural(rest, "more refused request")}: shardledger oom lists them.`));
  const cut = run.ranks.filter((rank) => rank.ended === "cut off");
  if (cut.length)
    box.append(element("div", {class: "alert"}, element("b", {}, `${rankWords(cut)}: the log just stops.`),
                       " The process was killed, crashed, or is still running; what was recorded until then is here."));
  if (run.gaps.length) {
    const lost = run.gaps.reduce((sum, gap) => sum + gap.lost, 0);
    box.append(element("div", {class: "alert"}, element("b", {}, `${plural(run.gaps.length, "gap")} in the record`),
                       `, ${plural(lost, "event")} lost there: listed at the end of this page, marked in the timeline.`));
  }
  const blind = app.all.filter((view) => !view.recorded), coarse = run.ranks.filter((rank) => rank.fidelity === "history");
  if (blind.length)
    box.append(element("div", {class: "alert"}, element("b", {}, `${rankWords(blind)}: allocations of tensors were not recorded.`),
                       " What is missing, and why, is at the end of this page."));
  const taken = run.ranks.filter((rank) => rank.fidelity === "snapshot");
  if (taken.length)
    box.append(element("div", {class: "alert"}, `${rankWords(taken)}: read from PyTorch’s own memory snapshot, which tells no steps, no modules and not what tensors are.`));
  if (coarse.length)
    box.append(element("div", {class: "alert"}, `${rankWords(coarse)}: allocations were read from PyTorch’s history at step ends, without their thread.`));
  const [unchecked] = run.unchecked;
  if (unchecked)
    box.append(element("div", {class: "alert"}, `In ${plural(unchecked.steps, "step")} PyTorch’s own statistics differ from the ledger: rank ${
      unchecked.rank}, step ${unchecked.step} first.`));
}

function figure(name, value, note, title) {
  return element("div", {}, element("dt", {}, name), element("dd", {title}, element("b", {}, value), element("span", {class: "note"}, note)));
}

// "step 3, backward of blocks.0", or the period outside of steps.
function peakPlace(peak) {
  return peak.step === null ? peak.where : `step ${peak.step}, ${peak.where}`;
}

function showFigures(ranks) {
  const box = document.getElementById("figures");
  const known = ranks.filter((view) => view.life);
  box.hidden = !known.length;
  if (!known.length) return;
  const worst = known.reduce((a, b) => (b.life.allocated > a.life.allocated ? b : a));
  const least = known.reduce((a, b) => (b.life.allocated < a.life.allocated ? b : a));
  const stepped = ranks.filter((view) => view.highest).reduce((a, b) => (a && a.highest.allocated >= b.highest.allocated ? a : b), null);
  const peak = worst.life, total = worst.facts.device_bytes;
  const figures = [
    figure("Peak allocated", formatBytes(peak.allocated), `rank ${worst.rank}, ${peakPlace(peak)}`, formatExact(peak.allocated)),
    peak.step === null && stepped ? figure("Highest step", formatBytes(stepped.highest.allocated), `rank ${stepped.rank}, step ${stepped.highest.step}, ${stepped.highest.place}`, formatExact(stepped.highest.allocated)) : null,
    figure(`Highest reserved in that ${peak.step === null ? "period" : "step"}`, formatBytes(peak.reserved), peak.reserved ? `${formatBytes(peak.reserved - peak.allocated)} more than allocated` : "not known", formatExact(peak.reserved)),
    figure("Device in use", formatBytes(peak.device), peak.device && total ? `${formatShare(peak.device, total)} of ${formatBytes(total)}, in that ${peak.step === null ? "period" : "step"}` : "no sample", formatExact(peak.device)),
    known.length > 1 ? figure("Lowest peak of all ranks", formatBytes(least.life.allocated), peak.allocated === least.life.allocated ? "the same on every rank" : `rank ${least.rank}, ${formatBytes(peak.allocated - least.life.allocated)} less`, formatExact(least.life.allocated))
                     : null];
  box.append(...figures.filter(Boolean));
}

// Ranks as people write them, "64-71,137", or a part of a host's name.
function rankFilter(text) {
  const words = text.trim().toLowerCase();
  if (!/^\d[\d\s,–-]*$/.test(words)) return (view) => (view.facts.host || "").toLowerCase().includes(words);
  const runs = words.split(",").map((run) => run.split(/[–-]/).map(Number));
  return (view) => runs.some(([first, last]) => view.rank >= first && view.rank <= (last || first));
}

// The table of all ranks, made once, so that it keeps its order.
function startRanks(app) {
  const box = document.getElementById("ranks");
  const known = app.all.filter((view) => view.life), most = Math.max(...known.map((view) => view.life.allocated));
  box.closest("section").hidden = !known.length;
  if (!known.length) return;
  const {groups} = app.run, usual = groups.length > 1 ? app.byRank.get(groups[0].representative) : null, {bases, several: kinds} = findBases(app.run);
  const several = new Set(known.map((view) => view.facts.host)).size > 1;
  const base = (view) => app.byRank.get(bases.get(view.rank));
  const apart = (view) => (usual ? view.life.allocated - base(view).life.allocated : null);
  const columns = [
    {name: "Rank", number: false, value: (view) => view.rank, cell: (view) => (app.standFor(view.rank) ?
      element("button", {type: "button", "aria-pressed": view.rank === app.view.rank, onclick: () => app.showRank(view.rank)}, `${view.rank}`) : `${view.rank}`)},
    {name: "", cell: (view) => stackedBar(app.layers.map((layer) => ({bytes: view.heldAtPeak.get(layer) || 0, fill: categoryColour(layer), name: layer})), most)},
    several && {name: "Host", value: (view) => view.facts.host, cell: (view) => element("span", {class: "host"}, view.facts.host ?? "–")},
    usual && {name: "Group", number: true, value: (view) => view.facts.group, cell: (view) => (view.facts.group === null ? "–" :
      element("span", {title: `ranks ${groups[view.facts.group].ranks}`}, `${view.facts.group}`))},
    {name: "Peak", number: true, value: (view) => view.life.allocated, cell: (view) => bytesCell(view.life.allocated)},
    usual && {name: kinds ? "Against its kind" : `Against ${usual.rank}`, number: true, value: apart,
              help: `what the peak is more than that of the rank which speaks for ${kinds ? "ranks of its kind" : "the largest group"}`,
              cell: (view) => element("span", {title: `${formatExact(apart(view))}, against rank ${base(view).rank}`}, apart(view) === 0 ? "0" : `${apart(view) > 0 ? "+" : ""}${formatBytes(apart(view))}`)},
    {name: "Step", value: (view) => view.life.step, cell: (view) => (view.life.step === null ? "–" : `${view.life.step}`)},
    {name: "Where", value: (view) => view.life.where},
    {name: "Reserved", number: true, value: (view) => view.life.reserved, cell: (view) => bytesCell(view.life.reserved)},
    {name: "Device", number: true, value: (view) => view.life.device, cell: (view) => bytesCell(view.life.device)},
    {name: "Ended", value: (view) => view.facts.ended}].filter(Boolean);
  const table = new SortedTable(element("div", {class: "scroll bars"}), columns, {most: 32, fixed: known.length < 2});
  table.rows = known;
  if (usual && known.length > FEW_RANKS) Object.assign(table, {sorted: columns.findIndex((one) => one.value === apart), descending: true});
  app.rankTable = table;
  const filter = document.getElementById("rank-filter");
  filter.parentElement.parentElement.hidden = known.length <= FEW_RANKS;
  filter.addEventListener("input", () => table.show(known.filter(rankFilter(filter.value))));
  box.replaceChildren(table.box, element("div", {class: "scroll", id: "categories", style: {marginTop: "14px"}}));
}

const CATEGORY_RANKS = 10; // a column each

function showRanks(app) {
  if (!app.rankTable) return;
  app.rankTable.render();
  const drawn = app.ranks.filter((view) => view.life), {layers} = app;
  const known = drawn.slice(0, CATEGORY_RANKS);
  if (app.view.life && !known.includes(app.view)) known[known.length - 1] = app.view;
  const holds = (view, layer) => view.heldAtPeak.get(layer) || 0;
  const shown = layers.filter((layer) => known.some((view) => holds(view, layer) > 0));
  shown.sort((a, b) => holds(app.view, b) - holds(app.view, a));
  const total = app.view.life ? app.view.life.allocated : 0;
  const categories = plainTable(["At the peak", ...known.map((view) => `Rank ${view.rank}`), `Share on ${app.view.rank}`],
    shown.map((layer) => [named(categoryColour(layer), layer), ...known.map((view) => bytesCell(holds(view, layer))),
                          formatShare(holds(app.view, layer), total)]), [...known.map((_, i) => i + 1), known.length + 1]);
  categories.append(element("tfoot", {}, element("tr", {}, element("th", {scope: "row"}, "allocated"),
    ...known.map((view) => element("td", {class: "number"}, bytesCell(view.life.allocated))), element("td", {class: "number"}, "100.0%"))));
  document.getElementById("categories").replaceChildren(categories);
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
  const {bytes, whole} = unattributedOf(app.all);
  const unknown = bytes ? element("p", {}, `${formatBytes(bytes)} (${formatShare(bytes, whole)}) of what was allocated at the peaks is unattributed: the record tells of it, but no rule says whose it is. 'shardledger rules' says how to add one.`) : null;
  if (!rows.length) {
    box.replaceChildren(unknown || element("p", {}, "Nothing: no gaps, and every source of the record was on."));
    if (unknown) box.append(element("p", {}, "Otherwise nothing: no gaps, and every source of the record was on."));
    return;
  }
  const table = element("div");
  box.replaceChildren(...[unknown, table].filter(Boolean));
  new SortedTable(table, [
    {name: "At", number: true, value: (row) => row.at, cell: (row) => (row.at === null ? "" : !app.byRank.get(row.rank).drawn ? formatTime(row.at) :
      element("button", {type: "button", onclick: () => app.showMoment(row.rank, row.at, null)}, formatTime(row.at)))},
    {name: "Rank", number: true, value: (row) => row.rank, cell: (row) => `${row.rank}`},
    {name: "Source", value: (row) => row.source},
    {name: "Events lost", number: true, value: (row) => row.lost,
     cell: (row) => (row.lost === null ? "" : row.lost ? row.lost.toLocaleString("en-US") : "not known")},
    {name: "Why", value: (row) => row.reason},
  ], {most: 100}).show(rows);
}
