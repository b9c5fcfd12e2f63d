"use strict";
// Quantities as people read them, in the same words as the command's tables.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

// Rounded as the command rounds: of two equally near numbers to the even one.
function fixed(value, digits) {
  const scaled = Math.abs(value) * 10 ** digits;
  let whole = Math.round(scaled);
  if (scaled % 1 === 0.5 && whole % 2) whole--;
  return (Math.sign(value) * whole / 10 ** digits).toFixed(digits);
}

function formatBytes(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let unit = 0, value = Math.abs(bytes);
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = unit === 0 ? 0 : unit < 3 ? 1 : 2;
  return `${bytes < 0 ? "−" : ""}${fixed(value, digits)} ${UNITS[unit]}`;
}

function formatExact(bytes) {
  return bytes === null || bytes === undefined ? "not known" : `${WHOLE.format(bytes)} B`;
}

function formatShare(part, whole) {
  if (!whole) return "–";
  const percent = (part / whole) * 100;
  return percent > 0 && fixed(percent, 1) === "0.0" ? "<0.1%" : `${fixed(percent, 1)}%`;
}

// A length of time in nanoseconds.
function formatTime(ns) {
  const size = Math.abs(ns);
  if (size < 1e3) return `${Math.round(ns)} ns`;
  if (size < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (size < 1e9) return `${(ns / 1e6).toFixed(size < 1e7 ? 3 : 2)} ms`;
  if (size < 6e10) return `${(ns / 1e9).toFixed(3)} s`;
  const minutes = Math.floor(ns / 6e10);
  return `${minutes} min ${((ns - minutes * 6e10) / 1e9).toFixed(1)} s`;
}

const WHOLE = new Intl.NumberFormat("en-US"); // made once: toLocaleString makes one for each number

function plural(count, word) {
  return `${WHOLE.format(count)} ${word}${count === 1 ? "" : "s"}`;
}

// 0, 1, 2, 5 → "0–2, 5"
function formatRuns(numbers) {
  const runs = [];
  for (const n of numbers) {
    const last = runs[runs.length - 1];
    if (last && n === last[1] + 1) last[1] = n;
    else runs.push([n, n]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

// 1, 2, 5, 10, 20, 50 …
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((n) => n * power >= value * 0.999999) * power;
}

// Ticks of a bytes axis: powers of two and their halves, so that labels are whole in KiB, MiB, GiB.
function byteTicks(top, most) {
  let step = 1;
  while (top / step > most) step *= 2;
  const ticks = [];
  for (let at = 0; at <= top; at += step) ticks.push(at);
  return ticks;
}

function formatTick(bytes) {
  return bytes === 0 ? "0" : formatBytes(bytes).replace(/\.0+ /, " ");
}
