"use strict";
// The data block back into tables: page.h says how it is packed.

async function inflate(text) {
  const characters = atob(text), packed = new Uint8Array(characters.length);
  for (let i = 0; i < packed.length; i++) packed[i] = characters.charCodeAt(i);
  const stream = new DecompressionStream("deflate"), writer = stream.writable.getWriter();
  const written = Promise.all([writer.write(packed), writer.close()]);
  const whole = await new Response(stream.readable).arrayBuffer();
  await written;
  return new Uint8Array(whole);
}

async function readData() {
  const whole = await inflate(document.getElementById("data").textContent);
  const length = new DataView(whole.buffer).getUint32(0, true);
  const data = JSON.parse(new TextDecoder().decode(whole.subarray(4, 4 + length)));
  const run = {version: data.version, samples: whole.subarray(4 + length), timeline: data.timeline, heat: data.heat, code: data.code,
               rank_lines: data.rank_lines, advice: data.advice, answer: data.answer, rules: data.rules, diff: data.diff, byRank: {}};
  for (const [name, table] of Object.entries(data))
    if (table.columns) {
      run[name] = table.rows.map((row) => asObject(table.columns, row));
      run.byRank[name] = groupBy(run[name], "rank");
    }
  return run;
}

function asObject(columns, row) {
  const object = {};
  for (let i = 0; i < columns.length; i++) object[columns[i]] = row[i];
  return object;
}

function groupBy(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const group = groups.get(row[key]);
    if (group) group.push(row);
    else groups.set(row[key], [row]);
  }
  return groups;
}

// Index of the last of count items whose at(i) is not above the value, or -1.
function lastNotAbove(count, at, value) {
  let low = -1, high = count;
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (at(middle) <= value) low = middle;
    else high = middle;
  }
  return low;
}

/*
 * Everything about one rank, looked up once. Times are nanoseconds on the page's clock. Of one that is not drawn (page.h) there
 * is the highest point of its life: what was alive then, category to bytes.
 */
function rankView(run, facts, layers) {
  const {rank} = facts, of = (table) => run.byRank[table].get(rank) || [];
  const known = {rank, facts, drawn: false, recorded: facts.group !== null, life: of("life")[0] || null,
                 heldAtPeak: new Map(of("life_category").map((row) => [row.category, row.bytes]))};
  const index = run.timeline.find((item) => item.rank === rank), steps = of("steps");
  if (!index) return known;
  const view = {
    ...known,
    drawn: true,
    steps,
    stepByNumber: new Map(steps.map((step) => [step.step, step])),
    memory: new RankMemory(index, run.samples, layers),
    categories: new Map(),
    phases: of("phases"),
    collectives: of("collectives"),
    peaks: groupBy(of("module_peaks"), "step"),
    samples: of("device_samples"),
    balance: groupBy(of("device_balance"), "at"),
    ooms: of("oom"),
    gaps: of("gaps"),
  };
  for (const row of of("peak_category")) {
    if (!view.categories.has(row.step)) view.categories.set(row.step, new Map());
    view.categories.get(row.step).set(row.category, row.bytes);
  }
  // What was alive at a step's peak: category to bytes.
  view.atPeak = (step) => view.categories.get(step.step) || view.categories.get(step.same_as) || new Map();
  view.outer = view.phases.filter((phase) => phase.outer);
  view.longestOuter = longest(view.outer);
  view.highest = steps.reduce((best, step) => (step.allocated !== null && step.allocated > (best ? best.allocated : -1) ? step : best), null);
  view.recorded = view.memory.owners.length > 0; // allocations of tensors were
  return view;
}

// The step that a moment is in, or null.
function stepAt(view, at) {
  const i = lastNotAbove(view.steps.length, (n) => view.steps[n].start, at);
  return i >= 0 && at <= view.steps[i].end ? view.steps[i] : null;
}

function longest(items) {
  return items.reduce((most, item) => Math.max(most, item.end - item.start), 0);
}

// The step whose phases, collectives and allocations stand for a step's own, or null.
function originOf(view, step) {
  return step && step.same_as !== null ? view.stepByNumber.get(step.same_as) || null : null;
}

// A moment in the time of the step that its step repeats.
function atOrigin(view, at) {
  const step = stepAt(view, at), origin = originOf(view, step);
  return origin ? origin.start + ((at - step.start) / Math.max(1, step.end - step.start)) * (origin.end - origin.start) : at;
}

const REPEATED_MOST = 120; // steps in view; of more, phases are too narrow to be seen

/*
 * Items (sorted by start, the longest one known) that lie in a stretch of time. Steps that repeat another one have that
 * one's, in their own time.
 */
function itemsBetween(view, items, most, from, to) {
  const among = (start, end) => {
    const first = Math.max(0, lastNotAbove(items.length, (n) => items[n].start, start - most));
    const last = lastNotAbove(items.length, (n) => items[n].start, end);
    return items.slice(first, last + 1).filter((item) => item.end >= start);
  };
  const found = among(from, to);
  const repeated = view.steps.filter((step) => step.same_as !== null && step.end > from && step.start < to);
  if (repeated.length > REPEATED_MOST) return found;
  for (const step of repeated) {
    const origin = originOf(view, step);
    if (!origin) continue;
    const stretch = (step.end - step.start) / Math.max(1, origin.end - origin.start);
    for (const item of among(origin.start, origin.end))
      if (item.start >= origin.start && item.start < origin.end)
        found.push({...item, start: step.start + (item.start - origin.start) * stretch,
                    end: step.start + (item.end - origin.start) * stretch, origin: origin.step});
  }
  return found;
}
