"use strict";
// Memory of one rank over time: page_timeline.c says how windows and samples are written.

const NARROW = 4; // pixels

class RankMemory {
  constructor(index, bytes, layers) {
    this.bytes = bytes;
    this.layerCount = layers.length;
    this.owners = index.owners.map(([module, category, detail]) => ({module, category, detail,
                                                                      layer: layers.indexOf(category)}));
    this.windows = index.windows.map((row) => asObject(
      ["step", "start", "end", "repeats", "full", "events", "count", "values", "times", "difference"], row));
    this.cache = [];
    this.peaks = [];
  }

  get start() {
    return this.windows.length ? this.windows[0].start : 0;
  }
  get end() {
    return this.windows.length ? this.windows[this.windows.length - 1].end : 0;
  }

  number() {
    let value = 0, scale = 1, byte;
    do {
      byte = this.bytes[this.at++];
      value += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte & 0x80);
    return value;
  }
  signed() {
    const value = this.number();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  // A window's samples; the first one is what was there at its start.
  decoded(i) {
    if (!this.cache[i]) this.cache[i] = this.windows[i].repeats < 0 ? this.decode(this.windows[i]) : this.repeated(i);
    return this.cache[i];
  }

  decode(window) {
    const count = window.count + 1, layers = this.layerCount;
    const found = {times: new Float64Array(count), totals: new Float64Array(count),
                   layers: new Float64Array(count * layers), initial: new Map(), changes: new Array(count)};
    found.times[0] = window.start;
    this.at = window.times;
    for (let k = 1; k < count; k++) found.times[k] = found.times[k - 1] + this.number();
    this.at = window.values;
    for (let n = this.number(); n > 0; n--) {
      const owner = this.number(), bytes = this.signed();
      found.initial.set(owner, bytes);
      found.totals[0] += bytes;
      found.layers[this.owners[owner].layer] += bytes;
    }
    for (let k = 1; k < count; k++) {
      const changes = [];
      found.totals[k] = found.totals[k - 1];
      found.layers.copyWithin(k * layers, (k - 1) * layers, k * layers);
      for (let n = this.number(); n > 0; n--) {
        const owner = this.number(), bytes = this.signed();
        changes.push(owner, bytes);
        found.totals[k] += bytes;
        found.layers[k * layers + this.owners[owner].layer] += bytes;
      }
      found.changes[k] = changes;
    }
    return found;
  }

  /*
   * A step that left its rows to another one has that one's samples, in its own time, and so has what lies before it. Where
   * nothing lies before that one, what there was last stays.
   */
  repeated(i) {
    const window = this.windows[i], source = this.decoded(window.repeats), original = this.windows[window.repeats];
    if (window.step < 0 && original.step >= 0) {
      const last = source.times.length - 1;
      return {times: Float64Array.of(window.start), totals: source.totals.slice(last),
              layers: source.layers.slice(last * this.layerCount), initial: this.replay(source, last), changes: []};
    }
    const stretch = (window.end - window.start) / Math.max(1, original.end - original.start);
    return {...source, times: source.times.map((at) => window.start + (at - original.start) * stretch)};
  }

  replay(found, sample) {
    const bytes = new Map(found.initial);
    for (let k = 1; k <= sample; k++)
      for (let n = 0; n < found.changes[k].length; n += 2) {
        const owner = found.changes[k][n];
        bytes.set(owner, (bytes.get(owner) || 0) + found.changes[k][n + 1]);
      }
    return bytes;
  }

  // Where a moment is: [window, sample].
  find(at) {
    const window = Math.max(0, lastNotAbove(this.windows.length, (n) => this.windows[n].start, at));
    // What happens at a step's end belongs to the step.
    const own = window > 0 && this.windows[window].start === at && this.windows[window].step < 0 ? window - 1 : window;
    const found = this.decoded(own);
    return [own, Math.max(0, lastNotAbove(found.times.length, (n) => found.times[n], at))];
  }

  totalAt(at) {
    const [window, sample] = this.find(at);
    return this.decoded(window).totals[sample];
  }

  // The instant, in the time of the rows, that a moment is drawn from.
  instantOf(at) {
    const [window, sample] = this.find(at), {repeats, step, full} = this.windows[window];
    if (repeats < 0) return full ? at : this.decoded(window).times[sample];
    const {times} = this.decoded(repeats); // of what lies before a step and repeats a step, its end
    return step < 0 && this.windows[repeats].step >= 0 ? times[times.length - 1] : times[sample];
  }

  layersAt(at) {
    const [window, sample] = this.find(at);
    return this.decoded(window).layers.subarray(sample * this.layerCount, (sample + 1) * this.layerCount);
  }

  // [{module, category, detail, bytes}] at a moment, the largest first.
  ownersAt(at) {
    const [window, sample] = this.find(at);
    const held = [];
    for (const [owner, bytes] of this.replay(this.decoded(window), sample))
      if (bytes !== 0) held.push({...this.owners[owner], bytes});
    return held.sort((a, b) => b.bytes - a.bytes);
  }

  // The sample after a moment (direction 1) or before it (-1): its time.
  neighbour(at, direction) {
    let [window, sample] = this.find(at);
    for (;;) {
      sample += direction;
      while (sample < 0 || sample >= this.decoded(window).times.length) {
        window += direction;
        if (window < 0 || window >= this.windows.length) return at;
        sample = direction > 0 ? 0 : this.decoded(window).times.length - 1;
      }
      const next = this.decoded(window).times[sample];
      if (direction > 0 ? next > at : next < at) return next;
    }
  }

  // The highest instant of a window: {sample, at, bytes}.
  peakOf(window) {
    if (!this.peaks[window]) {
      const {times, totals} = this.decoded(window);
      let sample = 0;
      for (let k = 1; k < totals.length; k++) if (totals[k] > totals[sample]) sample = k;
      this.peaks[window] = {sample, at: times[sample], bytes: totals[sample]};
    }
    return this.peaks[window];
  }

  highest() {
    return this.windows.map((_, i) => this.peakOf(i)).reduce((a, b) => (b.bytes > a.bytes ? b : a));
  }

  /*
   * What to draw between two moments: times, and for each layer the bytes of it and of those below, from the time to the next
   * one. Of each pixel's samples the highest and the lowest are drawn, so that no peak is lost. A step of a few pixels is
   * drawn as its highest instant alone (dense), because the rest would be stripes.
   */
  drawn(from, to, pixels) {
    const picked = [], width = (to - from) / pixels;
    let bucket = -1, high = null, low = null, dense = false, before = null;
    const flush = () => {
      if (high === null) return;
      picked.push(...(high === low ? [high] : high.at <= low.at ? [high, low] : [low, high]));
      high = low = null;
    };
    const add = (window, sample, at, total, alone) => {
      const here = Math.floor((at - from) / width), point = {window, sample, at, total};
      if (here !== bucket) flush();
      bucket = here;
      if (high === null) high = low = point;
      else if (total > high.total) [high, low] = alone ? [point, point] : [point, low];
      else if (total <= low.total && !alone) low = point;
    };
    if (this.windows.length && from <= this.end && to >= this.start) {
      const at = Math.max(from, this.start), [window, sample] = this.find(at);
      picked.push({window, sample, at});
    }
    for (let w = 0; w < this.windows.length; w++) {
      const {start, end, step} = this.windows[w];
      if (end < from || start > to) continue;
      const {times, totals} = this.decoded(w);
      if ((end - start) / width < NARROW) {
        const {sample, bytes} = this.peakOf(w);
        // What lies between two steps shows where it is higher than the step before.
        if (start > from && (step >= 0 || before === null || bytes > before)) add(w, sample, start, bytes, true);
        before = step >= 0 ? bytes : before;
        dense ||= step >= 0;
        continue;
      }
      before = null;
      for (let k = 0; k < times.length; k++) if (times[k] > from && times[k] <= to) add(w, k, times[k], totals[k], false);
    }
    flush();
    if (picked.length) picked.push({...picked[picked.length - 1], at: Math.min(to, this.end)});
    return {...this.cumulated(picked), dense};
  }

  cumulated(picked) {
    const times = new Float64Array(picked.length);
    const sums = Array.from({length: this.layerCount}, () => new Float64Array(picked.length));
    picked.forEach(({window, sample, at}, i) => {
      const layers = this.decoded(window).layers;
      let sum = 0;
      times[i] = at;
      for (let n = 0; n < this.layerCount; n++) {
        sum += layers[sample * this.layerCount + n];
        sums[n][i] = sum;
      }
    });
    return {times, sums};
  }
}
