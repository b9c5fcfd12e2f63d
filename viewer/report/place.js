"use strict";
// Where the reader is (rank, stretch of time, moment, what is chosen), kept in the page's address: to copy, to reload, to go back to.

const PLACE_AFTER = 250; // ms: a drag and held keys change it many times

class Place {
  constructor(app) {
    Object.assign(this, {app, written: location.hash});
    addEventListener("beforeunload", () => clearTimeout(this.timer)); // a new entry would call off what the reader just went to
    addEventListener("hashchange", () => {
      if (location.hash === this.written) return;
      this.written = location.hash;
      this.go(location.hash);
    });
  }

  words() {
    const {app} = this, {chart} = app, made = new URLSearchParams();
    const put = (name, value) => value !== null && value !== undefined && value !== "" && made.set(name, value);
    put("rank", document.getElementById("rank").value);
    put("from", Math.round(chart.from));
    put("to", Math.round(chart.to));
    put("at", Math.round(app.at));
    put("by", app.holders.by === "module" ? null : app.holders.by);
    put("zoom", app.holders.icicle.zoomed.length ? JSON.stringify(app.holders.icicle.zoomed) : null);
    put("find", app.allocations.find.value.trim());
    put("allocation", app.allocations.chosen);
    put("with", app.compare.first && `${app.compare.first.rank},${Math.round(app.compare.first.at)}`);
    return `#${made}`;
  }

  // Soon: what follows at once is one place. A moment alone is no place to go back to.
  remember() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), PLACE_AFTER);
  }

  write() {
    const words = this.words(), without = (text) => text.replace(/&at=\d+/, "");
    if (words === this.written) return;
    const alike = without(words) === without(this.written);
    this.written = words;
    try {
      if (alike) history.replaceState(null, "", words);
      else history.pushState(null, "", words);
    } catch {
      // A frame without an address of its own, as in a notebook, has none to keep a place in.
    }
  }

  // To a place that an address names; false where it names none.
  go(hash) {
    const {app} = this, asked = new URLSearchParams(hash.slice(1)), number = (name) => (/^-?\d+$/.test(asked.get(name) || "") ? Number(asked.get(name)) : null);
    const rank = number("rank"), [from, to, at] = ["from", "to", "at"].map(number);
    if (rank === null || !app.byRank.has(rank) || !app.standFor(rank)) return false;
    app.holders.by = ["module", "stack", "category"].includes(asked.get("by")) ? asked.get("by") : "module";
    app.holders.icicle.zoomed = keysOf(asked.get("zoom"));
    app.allocations.find.value = asked.get("find") || "";
    app.allocations.chosen = number("allocation");
    const first = /^(\d+),(-?\d+)$/.exec(asked.get("with") || "");
    app.compare.first = first && app.byRank.get(Number(first[1]))?.drawn ? {rank: Number(first[1]), at: Number(first[2])} : null;
    app.showRank(rank);
    if (from !== null && to !== null && to > from) app.zoom(from, to);
    app.select(at ?? app.at);
    return true;
  }
}

function keysOf(text) {
  try {
    const keys = JSON.parse(text || "[]");
    return Array.isArray(keys) ? keys.map(String) : [];
  } catch {
    return []; // an address that somebody cut
  }
}
