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
  const run = {version: data.version, samples: whole.subarray(4 + length), timeline: data.timeline, byRank: {}};
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

// Everything about one rank, looked up once. Times are nanoseconds on the page's clock.
function rankView(run, rank, layers) {
  const of = (table) => run.byRank[table].get(rank) || [];
  const steps = of("steps");
  const index = run.timeline.find((item) => item.rank === rank);
  const view = {
    rank,
    facts: run.ranks.find((row) => row.rank === rank),
    steps,
    stepByNumber: new Map(steps.map((step) => [step.step, step])),
    memory: new RankMemory(index, run.samples, layers),
    phases: of("phases"),
    collectives: of("collectives"),
    peaks: groupBy(of("module_peaks"), "step"),
    samples: of("device_samples"),
    balance: groupBy(of("device_balance"), "at"),
    ooms: of("oom"),
    gaps: of("gaps"),
  };
  view.highest = steps.reduce((best, step) => (step.allocated > (best ? best.allocated : -1) ? step : best), null);
  return view;
}

// The step that a moment is in, or null.
function stepAt(view, at) {
  const i = lastNotAbove(view.steps.length, (n) => view.steps[n].start, at);
  return i >= 0 && at <= view.steps[i].end ? view.steps[i] : null;
}
