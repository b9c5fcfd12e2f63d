"use strict";
// The allocations of a rank, one by one: those alive at a moment, or made in a stretch of time, as a table that is searched and sorted.

const LISTED_FIRST = 25, LISTED_MOST = 2000;

class AllocationsPart {
  constructor(app, section) {
    Object.assign(this, {app, section, made: null});
    const part = (name) => section.querySelector(`[data-part=${name}]`), {run} = app;
    this.phases = new Map(run.allocation_phases.map((row) => [row.id, row.path]));
    this.sites = new Map(run.allocation_sites.map((row) => [row.id, row]));
    Object.assign(this, {lead: part("lead"), note: part("note"), find: part("find"), said: part("matches"), scope: part("scope")});
    this.story = new Story(app, this, part("story"));
    this.table = new SortedTable(part("table"), [
      {name: "Number", number: true, value: (row) => row.id, cell: (row) => element("button", {type: "button", "aria-pressed": row.id === this.chosen, "data-id": row.id, onclick: () => app.chooseAllocation(row.id)}, `${row.id}`)},
      {name: "Bytes", number: true, value: (row) => row.bytes, cell: (row) => bytesCell(row.bytes)},
      {name: "Category", value: (row) => row.category, cell: (row) => element("span", {}, named(categoryColour(row.category), row.category), row.detail ? element("span", {class: "quiet"}, ` ${row.detail}`) : null)},
      {name: "Module", value: (row) => app.modules.short(row.module) || "", cell: (row) => element("span", {class: "fqn", title: app.modules.name(row.module)}, ...breakable(app.modules.short(row.module) || "no module"))},
      {name: "Name or line", value: (row) => this.nameOf(row), cell: (row) => element("span", {class: "fqn"}, ...breakable(this.nameOf(row)))},
      {name: "Made", number: true, value: (row) => row.alloc, cell: (row) => app.instant(row.alloc)},
      {name: "Lived", number: true, value: (row) => (row.free ?? Infinity) - row.alloc, cell: (row) => (row.free === null ? "to the end" : formatTime(row.free - row.alloc))},
    ], {most: LISTED_FIRST, atMost: LISTED_MOST});
    Object.assign(this.table, {sorted: 1, descending: true});
    this.find.addEventListener("input", () => this.draw());
    this.find.addEventListener("change", () => app.remember());
  }

  nameOf(row) {
    const site = this.sites.get(row.site);
    return row.name || (site?.line ? baseName(site.line) : "");
  }

  rowsOf(view) {
    if (!this.cached || this.cached.rank !== view.rank) {
      const rows = this.app.run.byRank.allocations.get(view.rank) || [];
      this.cached = {rank: view.rank, rows, byId: new Map(rows.map((row) => [row.id, row])), counts: this.app.run.byRank.allocation_counts.get(view.rank)?.[0]};
    }
    return this.cached;
  }

  // Of the rows' own time: a step that repeats another one has that one's.
  alive(view, at) {
    const then = view.memory.instantOf(at);
    return this.rowsOf(view).rows.filter((row) => row.alloc <= then && (row.free === null || row.free > then));
  }

  show(view, at) {
    Object.assign(this, {view, at});
    this.section.hidden = !view.recorded || !this.rowsOf(view).rows.length;
    if (!this.rowsOf(view).byId.has(this.chosen)) this.chosen = null; // it is another rank's
    if (!this.section.hidden) this.draw();
  }

  // What was made in a stretch of time on a thread, whatever became of it; null: what is alive at the moment.
  showMade(made) {
    this.made = made;
    this.draw();
  }

  draw() {
    const {view, at, app, made} = this, all = made ? this.rowsOf(view).rows.filter((row) => row.alloc >= made.from && row.alloc <= made.to && row.tid === made.tid) : this.alive(view, at);
    const words = this.find.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? all.filter((row) => words.every((word) => this.textOf(row).includes(word))) : all;
    const sum = (rows) => rows.reduce((bytes, row) => bytes + row.bytes, 0), whole = made ? sum(all) : view.memory.totalAt(at);
    this.lead.textContent = made ? `Made on rank ${view.rank} in ${made.label}: ${plural(all.length, "allocation")}, ${formatBytes(whole)} (${formatExact(whole)}), freed since or not.`
      : `Alive on rank ${view.rank}, ${app.place(at).text}: ${plural(all.length, "allocation")}, ${formatBytes(sum(all))} (${formatExact(sum(all))}).`;
    this.said.textContent = words.length ? (found.length ? `${plural(found.length, "allocation")}, ${formatBytes(sum(found))} (${formatShare(sum(found), whole)})` : "nothing here has that in it") : "";
    this.scope.replaceChildren(made ? element("button", {type: "button", onclick: () => this.showMade(null)}, "All that is alive at the moment") : "");
    this.note.textContent = this.noteOf(whole - sum(all));
    this.note.hidden = !this.note.textContent;
    this.table.show(found);
    this.story.show(this.rowsOf(view).byId.get(this.chosen) || null);
  }

  noteOf(rest) {
    const {counts} = this.rowsOf(this.view), parts = [], {memory} = this.view;
    const [window] = memory.find(this.at), {repeats, step} = memory.windows[window];
    if (!this.made && repeats >= 0) parts.push(step >= 0 ? `They are those of step ${memory.windows[repeats].step}, which step ${step} repeats.` : "They are those of the time before the step that is repeated.");
    if (!this.made && rest) parts.push(`${formatBytes(rest)} (${formatExact(rest)}) more are in smaller allocations that this page does not list.`);
    if (counts && counts.told < counts.count) parts.push(`Of this rank the page lists ${counts.told.toLocaleString("en-US")} of ${counts.count.toLocaleString("en-US")} allocations, those of its peaks and the largest; 'shardledger explain' knows them all.`);
    return parts.join(" ");
  }

  textOf(row) {
    if (row.text === undefined) {
      const site = this.sites.get(row.site);
      row.text = [row.id, row.category, row.detail, row.name, this.app.modules.name(row.module) || "no module", site?.line, site?.function, site?.operator, row.decided_by, row.note, this.phases.get(row.phase), `0x${row.address.toString(16)}`]
        .filter(Boolean).join(" ").toLowerCase();
    }
    return row.text;
  }

  // Words to look for, as a click elsewhere on the page gives them.
  search(words) {
    this.made = null;
    this.find.value = words;
    this.draw();
    this.section.scrollIntoView();
  }

  choose(id) {
    this.chosen = id;
    if (!this.section.hidden) this.draw();
  }
}
