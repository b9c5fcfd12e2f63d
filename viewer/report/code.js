"use strict";
// Where in the code memory was asked for, at the moments whose sites are in the page: page_code.c says how they are written.

class CodeMoments {
  constructor(code, bytes) {
    Object.assign(this, {code, bytes, cache: new Map()});
    const text = (n) => code.texts[n];
    // A frame knows its caller; a stack is its innermost frame.
    this.frames = code.frames.map(([caller, file, line, name, whose], id) =>
      ({id, caller, file: text(file), line, name: text(name), users: text(whose) === "user"}));
    this.sites = code.sites.map(([frame, line, operator, of], id) => ({
      id, frame: this.frames[frame] || null, line: this.frames[line] || null, operator: text(operator), of: text(of)}));
    this.byRank = groupBy(code.moments.map((row) => asObject(
      ["rank", "kind", "number", "start", "at", "bytes", "step", "place", "other", "site", "offset"], row)), "rank");
  }

  of(rank, kind) {
    return (this.byRank.get(rank) || []).filter((moment) => moment.kind === kind);
  }

  // The frames of a stack, the outermost first.
  stack(frame) {
    const found = [];
    for (let at = frame; at; at = this.frames[at.caller]) found.push(at);
    return found.reverse();
  }

  // The moment whose sites tell who held memory at an instant of a rank, or null.
  at(rank, at, step) {
    const here = (moment) => moment.at === at;
    return this.of(rank, "refused").find(here) || this.nearest(rank, at, step, true) || this.of(rank, "peak").find(here) || null;
  }

  // The highest point of the period that an instant is in, or null.
  nearest(rank, at, step, exactly) {
    const peaks = this.of(rank, "peak");
    const found = step ? peaks.find((moment) => moment.step === step.step)
                       : peaks[lastNotAbove(peaks.length, (n) => peaks[n].start, at)];
    return found && (!exactly || found.at === at) ? found : null;
  }

  // [{site, category, module, bytes, allocations}] of a moment; null: not in the page.
  rows(moment) {
    if (moment.offset < 0) return null;
    if (!this.cache.has(moment.offset)) this.cache.set(moment.offset, this.decode(moment.offset));
    return this.cache.get(moment.offset);
  }

  decode(offset) {
    let at = offset;
    const number = () => {
      let value = 0, scale = 1, byte;
      do {
        byte = this.bytes[at++];
        value += (byte & 0x7f) * scale;
        scale *= 128;
      } while (byte & 0x80);
      return value;
    };
    const found = [];
    for (let n = number(); n > 0; n--) {
      const site = number(), category = number(), module = number();
      found.push({site: this.sites[site - 1] || null, category: this.code.texts[category],
                  module: module ? this.code.modules[module - 1] : null, bytes: number(), allocations: number()});
    }
    return found;
  }
}

function baseName(file) {
  return file.slice(file.lastIndexOf("/") + 1);
}

// "train.py:40", or with its directory.
function frameLine(frame, whole) {
  return `${whole ? frame.file : baseName(frame.file)}${frame.line ? `:${frame.line}` : ""}`;
}
