"use strict";
// One allocation's whole story, as 'shardledger explain' tells it.

const OTHER_STREAMS_NS = 10000; // without another stream, freed and free for others are two events in a row

class Story {
  constructor(app, part, box) {
    Object.assign(this, {app, part, box});
  }

  show(row) {
    this.box.hidden = !row;
    if (!row) return this.box.replaceChildren();
    const {app} = this, module = app.modules.name(row.module);
    const facts = [["Made", `${this.moment(row.alloc)}, by ${row.tid ? `thread ${row.tid} of ` : ""}rank ${row.rank}`], ["In", this.part.phases.get(row.phase)?.replaceAll(" > ", " › ") || "no range"],
                   ["Size", this.size(row)], ["Where", `0x${row.address.toString(16)}, ${row.stream ? `stream 0x${row.stream.toString(16)}` : "the default stream"}, ${row.pool ? `pool ${row.pool}` : "the shared pool"}`],
                   ...this.code(row), row.note ? ["Note", row.note] : null, ...this.freed(row), ["Why", `rule ${row.decided_by}: ${app.run.rules[row.decided_by] || "a rule that this version does not know"}`]].filter(Boolean);
    this.box.replaceChildren(
      element("h3", {}, `Allocation ${row.id}: `, bytesCell(row.bytes), ` of ${row.category}${row.detail ? `/${row.detail}` : ""}${row.name ? `, ${row.name}` : ""}${module ? `, owned by ${module}` : ", owned by no module"}`),
      element("dl", {class: "story"}, ...facts.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)])),
      this.neighbours(row), element("button", {type: "button", onclick: () => app.chooseAllocation(null)}, "Close"), " ",
      element("button", {type: "button", onclick: () => app.showMoment(row.rank, row.alloc, null)}, "Show when it was made"));
  }

  // "step 3, 12.30 ms after its start", in the words of the command.
  moment(at) {
    const {view} = this.app, i = lastNotAbove(view.steps.length, (n) => view.steps[n].start, at), step = view.steps[i];
    if (!view.steps.length) return `${formatTime(at)} into the run`;
    if (!step) return `before the first step (${formatTime(at)} into the run)`;
    return at <= step.end ? `step ${step.step}, ${formatTime(at - step.start)} after its start` : `after step ${step.step}, ${formatTime(at - step.end)} after its end`;
  }

  size({bytes, requested}) {
    return bytes === requested ? `${formatBytes(requested)} (${formatExact(requested)}) asked for, and a block of just that size given`
      : `${formatBytes(requested)} (${formatExact(requested)}) asked for, a block of ${formatBytes(bytes)} given: ${formatBytes(bytes - requested)} more`;
  }

  code(row) {
    const site = this.part.sites.get(row.site);
    if (!site) return [];
    const when = row.site_step === null ? "" : `; recorded in step ${row.site_step}, at the same place`, of = {forward: ", in the backward of this line", waiting: ", where the main thread waited"}[site.stack_of] || "";
    const line = site.line ? `${site.line} in ${site.function}${site.operator ? `, ${site.operator}` : ""}${of}${when}` : site.operator ? `${site.operator}, where no Python code ran${when}` : null;
    return [line && ["Code", line], site.stack && ["Stack", site.stack.replaceAll(" > ", " › ")]].filter(Boolean);
  }

  freed(row) {
    if (row.free === null) return [["Freed", "never: alive when the log ended"]];
    if (row.gone) return [["Freed", `in the part of the log that was dropped: last known alive ${this.moment(row.free)}`], ["Lived", `at least ${formatTime(row.free - row.alloc)}`]];
    const later = row.complete === null ? "its memory was not free for others before the log ended: another stream used it"
      : row.complete - row.free >= OTHER_STREAMS_NS ? `its memory was free for others ${formatTime(row.complete - row.free)} later, when another stream was done with it` : null;
    return [["Freed", `${this.moment(row.free)}; in ${this.part.phases.get(row.free_phase)?.replaceAll(" > ", " › ") || "no range"}`],
            ["Lived", `${formatTime(row.free - row.alloc)}${later ? `; ${later}` : ""}`]];
  }

  // Who else had a part of the same memory, of those that the page lists: the nearest before and after.
  neighbours(row) {
    const {rows, counts} = this.part.rowsOf(this.app.view);
    if (counts.told < counts.count) return element("p", {class: "quiet"}, "Who had the same memory before and after: ", element("code", {}, `shardledger explain ${row.id}`));
    const same = rows.filter((other) => other !== row && other.address < row.address + row.bytes && other.address + other.bytes > row.address).sort((a, b) => a.id - b.id);
    const after = same.findIndex((other) => other.id > row.id), at = after < 0 ? same.length : after, near = same.slice(Math.max(0, at - 3), at + 3);
    if (!near.length) return element("p", {class: "quiet"}, "No other allocation had any of this memory.");
    return element("div", {class: "scroll"}, plainTable(["Same memory", "Number", "Bytes", "Category", "Module", "Lived"], near.map((other) => [other.id < row.id ? "before" : "after",
      element("button", {type: "button", onclick: () => this.app.chooseAllocation(other.id)}, `${other.id}`), bytesCell(other.bytes), named(categoryColour(other.category), `${other.category}${other.detail ? `/${other.detail}` : ""}`),
      element("span", {class: "fqn"}, this.app.modules.short(other.module) || "no module"), other.free === null ? "to the end" : formatTime(other.free - other.alloc)]), [2]));
  }
}
