"use strict";
// PyTorch's segments at a moment, and what is in them: free blocks are what the cache can't give back, or serve a request with.

const SMALL_SEGMENT = 2 << 20; // segments, and pieces of expandable ones, for small requests: they are not joined with others
const SEGMENT_ROWS = 24, SEGMENT_ROW = 16, SVG = "http://www.w3.org/2000/svg";

function drawnIn(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

class SegmentsPart {
  constructor(app, section) {
    Object.assign(this, {app, section});
    const part = (name) => section.querySelector(`[data-part=${name}]`);
    Object.assign(this, {lead: part("lead"), note: part("note"), picture: part("picture"), more: part("more")});
    this.picture.addEventListener("click", (event) => {
      const id = event.target.dataset.id;
      if (id) {
        app.chooseAllocation(Number(id));
        app.allocations.story.box.scrollIntoView({block: "center"});
      }
    });
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this.show(this.view, this.at);
    });
  }

  show(view, at) {
    Object.assign(this, {view, at});
    const rows = this.app.run.byRank.segments.get(view.rank) || [];
    this.section.hidden = !view.recorded || !rows.length;
    if (!this.section.hidden) this.draw(rows);
  }

  draw(rows) {
    const {view, at, app} = this, then = view.memory.instantOf(at), lives = (row, end) => row.alloc <= then && (end === null || end > then);
    const segments = joined(rows.filter((row) => lives(row, row.free)));
    // Blocks that are allocated, and those that another stream still uses.
    const all = app.allocations.rowsOf(view).rows;
    const blocks = all.filter((row) => lives(row, row.free) || (row.free !== null && row.free <= then && (row.complete === null || row.complete > then)));
    const placed = place(segments, blocks, all.filter((row) => row.pool !== null), then), outside = blocks.length - placed;
    const sum = (kind) => segments.reduce((all, segment) => all + segment[kind], 0), reserved = sum("bytes"), used = sum("used");
    const listed = blocks.filter((row) => lives(row, row.free)).reduce((all, row) => all + row.bytes, 0), whole = view.memory.totalAt(at) === listed;
    segments.sort((a, b) => b.kept - a.kept || b.bytes - a.bytes || a.address - b.address);
    const largest = segments.reduce((most, segment) => Math.max(most, segment.largest), 0);
    this.lead.textContent = `${plural(segments.length, "segment")}, ${formatBytes(reserved)} (${formatExact(reserved)}) reserved${whole ? `: ${formatBytes(used)} in use, ${formatBytes(reserved - used)} free, the largest free block ${formatBytes(largest)}. ${formatBytes(sum("kept"))} of what is free is in segments that live memory keeps.` : "."}`;
    this.note.textContent = [whole ? "" : "Not all allocations of this moment are in the page, so what looks free may be in use: shardledger device --segments knows.",
                             outside ? `${plural(outside, "allocation")} lie in no segment that was recorded.` : ""].filter(Boolean).join(" ");
    const shown = this.all ? segments.slice(0, 400) : segments.slice(0, SEGMENT_ROWS);
    this.more.hidden = segments.length <= SEGMENT_ROWS;
    this.more.textContent = this.all ? "Show fewer" : `Show all ${segments.length}`;
    this.picture.replaceChildren(this.svg(shown));
  }

  svg(segments) {
    const width = Math.max(280, this.picture.clientWidth), left = 150, right = 92, most = Math.max(1, ...segments.map((segment) => segment.bytes));
    const scale = (bytes) => (bytes / most) * (width - left - right), svg = drawnIn("svg", {width, height: segments.length * (SEGMENT_ROW + 3) + 4, role: "img", "aria-label": "Segments and their blocks, a row a segment", "font-family": cssFont(11).slice(5), "font-size": 11});
    segments.forEach((segment, i) => {
      const y = i * (SEGMENT_ROW + 3) + 2, pool = segment.pool || (segment.stream ? `stream ${segment.stream.toString(16)}` : segment.mapped ? "expandable" : "");
      svg.append(drawnIn("text", {x: 0, y: y + 12, fill: colour("--quiet")}, `0x${segment.address.toString(16)} ${pool}`),
                 drawnIn("rect", {x: left, y, width: Math.max(1, scale(segment.bytes)), height: SEGMENT_ROW, fill: colour("--grid"), stroke: colour("--line")}, drawnIn("title", {}, `segment of ${formatBytes(segment.bytes)}, ${formatBytes(segment.bytes - segment.used)} free, the largest free block ${formatBytes(segment.largest)}`)));
      for (const block of segment.blocks) {
        const pending = block.free !== null && block.free <= this.view.memory.instantOf(this.at);
        svg.append(drawnIn("rect", {x: left + scale(block.address - segment.address), y: y + 1, width: Math.max(0.5, scale(block.bytes) - 0.5), height: SEGMENT_ROW - 2, fill: categoryColour(block.category), "fill-opacity": pending ? 0.4 : 1, "data-id": block.id, style: "cursor: pointer"},
          drawnIn("title", {}, `${block.id}: ${formatBytes(block.bytes)} of ${block.category}, ${this.app.modules.short(block.module) || "no module"}${pending ? ", freed, but a stream still uses it" : ""}`)));
      }
      svg.append(drawnIn("text", {x: left + scale(segment.bytes) + 6, y: y + 12, fill: colour("--ink")}, formatBytes(segment.bytes)));
    });
    return svg;
  }
}

// Pieces of an expandable segment that lie one after the other are one.
function joined(rows) {
  const found = [];
  for (const row of rows.slice().sort((a, b) => a.address - b.address)) {
    const last = found[found.length - 1];
    if (last && row.mapped && last.mapped && last.stream === row.stream && (row.bytes === SMALL_SEGMENT) === last.small && last.address + last.bytes === row.address) {
      last.parts.push({address: row.address, bytes: row.bytes, live: false});
      last.bytes += row.bytes;
    } else {
      found.push({...row, small: row.bytes === SMALL_SEGMENT, parts: [{address: row.address, bytes: row.bytes, live: false}], blocks: [], used: 0, largest: 0, kept: 0, pool: null});
    }
  }
  return found;
}

// Puts blocks into their segments; returns how many have one. kept: free bytes in parts that a live block keeps from the driver.
// privates: all of private pools, by which a segment is known that has none of them now.
function place(segments, blocks, privates, then) {
  let placed = 0;
  for (const block of privates) {
    const segment = segments[lastNotAbove(segments.length, (n) => segments[n].address, block.address)];
    if (segment && block.address < segment.address + segment.bytes && block.alloc >= segment.alloc && block.alloc <= then) segment.pool = block.pool;
  }
  for (const block of blocks) {
    const i = lastNotAbove(segments.length, (n) => segments[n].address, block.address), segment = segments[i];
    if (!segment || block.address >= segment.address + segment.bytes) continue;
    segment.blocks.push(block);
    segment.pool = block.pool || segment.pool;
    placed++;
  }
  for (const segment of segments) {
    let at = segment.address;
    segment.blocks.sort((a, b) => a.address - b.address);
    for (const block of segment.blocks) {
      segment.largest = Math.max(segment.largest, block.address - at);
      at = block.address + block.bytes;
      segment.used += block.bytes;
      for (const part of segment.parts) part.live ||= block.address < part.address + part.bytes && block.address + block.bytes > part.address;
    }
    segment.largest = Math.max(segment.largest, segment.address + segment.bytes - at);
    const live = segment.parts.filter((part) => part.live).reduce((all, part) => all + part.bytes, 0);
    segment.kept = segment.pool ? segment.bytes - segment.used : live - segment.used; // a private pool keeps all of its own
  }
  return placed;
}
