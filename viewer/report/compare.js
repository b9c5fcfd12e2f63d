"use strict";
// Two moments, or two ranks, side by side: owner by owner, the largest change first.

class ComparePart {
  constructor(app, section) {
    Object.assign(this, {app, section, first: null});
    const part = (name) => section.querySelector(`[data-part=${name}]`);
    Object.assign(this, {lead: part("lead"), bars: part("bars"), buttons: part("buttons")});
    const bytes = (name, key) => ({name, number: true, value: (row) => row[key], cell: (row) => bytesCell(row[key])});
    this.table = new SortedTable(part("table"), [
      {name: "Module", value: (row) => row.module, cell: (row) => element("span", {class: "fqn"}, ...breakable(row.module))},
      {name: "Category", value: (row) => row.category, cell: (row) => element("span", {}, named(categoryColour(row.category), row.category), row.detail ? element("span", {class: "quiet"}, ` ${row.detail}`) : null)},
      bytes("First", "before"), bytes("Second", "after"),
      {name: "Change", number: true, help: "The second less the first; sorted by its size", value: (row) => Math.abs(row.change), cell: (row) => changeCell(row.change)},
    ], {most: 20, atMost: 1000});
    Object.assign(this.table, {sorted: 4, descending: true});
  }

  keep() {
    this.first = {rank: this.app.view.rank, at: this.app.at};
    this.show();
    this.app.remember();
  }

  swap() {
    const {rank, at} = this.first;
    this.first = {rank: this.app.view.rank, at: this.app.at};
    this.app.showMoment(rank, at, null);
    this.section.scrollIntoView();
  }

  // Owners by name: modules of two ranks are not the same rows.
  ownersOf({rank, at}) {
    const found = new Map();
    for (const {module, category, detail, bytes} of this.app.byRank.get(rank).memory.ownersAt(at)) {
      const row = {module: this.app.modules.short(module) || "no module", category, detail}, key = JSON.stringify(row);
      found.set(key, {...row, bytes: (found.get(key)?.bytes || 0) + bytes});
    }
    return found;
  }

  where({rank, at}) {
    const view = this.app.byRank.get(rank), step = stepAt(view, at);
    return `rank ${rank}, ${step ? `step ${step.step}, +${formatTime(at - step.start)}` : `${formatTime(at)} into the run`}`;
  }

  show() {
    const {app, first} = this, second = {rank: app.view.rank, at: app.at};
    const wanted = first && app.view.recorded && app.byRank.get(first.rank).recorded;
    this.section.hidden = !wanted;
    if (!wanted) return;
    const before = this.ownersOf(first), after = this.ownersOf(second);
    const rows = [...new Map([...before, ...after])].map(([key, row]) => {
      const [old, now] = [before.get(key)?.bytes || 0, after.get(key)?.bytes || 0];
      return {...row, before: old, after: now, change: now - old};
    });
    const sum = (owners) => [...owners.values()].reduce((all, row) => all + row.bytes, 0), [old, now] = [sum(before), sum(after)];
    const same = rows.filter((row) => row.change === 0);
    this.lead.replaceChildren(`First: ${this.where(first)}, `, bytesCell(old), `. Second: ${this.where(second)}, `, bytesCell(now), `. Change: `, changeCell(now - old),
      `. ${plural(same.length, "owner")} with ${formatBytes(same.reduce((all, row) => all + row.before, 0))} did not change. Choose the second moment in the timeline, or another rank.`);
    this.bars.replaceChildren(...[["First", first, old], ["Second", second, now]].map(([name, {rank, at}, whole]) => {
      const held = app.byRank.get(rank).memory.layersAt(at);
      return element("div", {class: "pair"}, element("span", {}, name), stackedBar(app.layers.map((layer, i) => ({name: layer, bytes: held[i], fill: categoryColour(layer)})), Math.max(old, now, 1)), bytesCell(whole));
    }));
    this.table.show(rows.filter((row) => row.change !== 0));
  }

  forget() {
    this.first = null;
    this.show();
    this.app.remember();
  }
}

function changeCell(bytes) {
  return element("span", {title: formatExact(bytes), "data-bytes": bytes}, bytes === 0 ? "0" : `${bytes > 0 ? "+" : ""}${formatBytes(bytes)}`);
}
