"use strict";
// The tree of modules with their peaks.

class ModulesTable {
  constructor(box, modules, onPick) {
    this.modules = new Map(modules.map((module) => [module.id, module]));
    this.find = "";
    const bytes = (name, key, help) => ({name, help, number: true, value: (row) => row[key], cell: (row) => (row[key] === null ? "–" : bytesCell(row[key]))});
    this.table = new SortedTable(box, [
      {name: "Module", help: "Sort by name: the tree", value: (row) => row.order,
       cell: (row, tree) => element("button", {type: "button", class: "plain fqn", title: row.module.name, "aria-label": `The allocations of ${row.module.name}`, onclick: () => onPick(row.module.name),
                                               style: tree ? {paddingLeft: `${row.depth * 1.1}em`} : {}},
                                    this.label(row, tree), row.module.is_fsdp ? element("span", {class: "quiet"}, " FSDP") : null)},
      {name: "Class", value: (row) => row.module.class || "", cell: (row) => row.module.class || ""},
      bytes("Forward", "forward", "The whole device's peak while the module ran forward"),
      bytes("Backward", "backward", "The whole device's peak while the module ran backward"),
      bytes("Own", "own", "The most that the module itself owned"),
      bytes("With children", "whole", "The most that it and all modules below it owned at one instant"),
      bytes("Parameters", "params", "Parameters on this rank, children included"),
      bytes("Buffers", "buffers", "Buffers on this rank, children included"),
    ], {most: 60, natural: true});
  }

  label(row, tree) {
    return tree && row.above && row.above.module.fqn ? row.module.fqn.slice(row.above.module.fqn.length + 1) : row.module.label;
  }

  // Each row with the nearest module above it that has a row.
  nest(rows) {
    for (const row of rows.values()) {
      let above = row.module.parent;
      while (above !== null && !rows.has(above)) above = this.modules.get(above)?.parent ?? null;
      row.above = above === null ? null : rows.get(above);
    }
    for (const row of rows.values()) {
      row.depth = 0;
      for (let above = row.above; above; above = above.above) row.depth++;
    }
  }

  name(id) {
    const module = this.modules.get(id);
    return module ? module.name || module.fqn || module.class || "(root)" : null;
  }

  // Without the root's class, where names are many and room is little.
  short(id) {
    const module = this.modules.get(id);
    return module ? module.label : null;
  }

  // The step's modules, or those of the step that it repeats, or those of the rank's highest step.
  show(view, step) {
    const wanted = [step?.step, step?.same_as, view.highest?.step, view.highest?.same_as].find((n) => view.peaks.has(n));
    const lead = document.getElementById("modules-lead");
    this.table.box.parentElement.hidden = ![...this.modules.values()].some((module) => module.rank === view.rank);
    if (wanted === undefined) {
      this.table.box.parentElement.hidden = true;
      return;
    }
    const asked = step ? step.step : wanted;
    lead.textContent = `Peaks on rank ${view.rank} in step ${wanted}${wanted === asked ? "" : step.same_as === wanted
      ? `, which step ${asked} repeats` : ` (those of step ${asked} are not in this page: shardledger report --step ${asked})`}. Forward and Backward: the whole device while the module ran. Own: what the module itself owned.`;
    const rows = new Map();
    for (const peak of view.peaks.get(wanted)) {
      const row = rows.get(peak.module) || {module: this.modules.get(peak.module), forward: null, backward: null, own: null, whole: null};
      if (peak.phase === "forward" || peak.phase === "backward") row[peak.phase] = peak.allocated;
      row.own = Math.max(row.own, peak.own);
      row.whole = Math.max(row.whole, peak.whole);
      rows.set(peak.module, row);
    }
    this.without = 0;
    for (const module of this.modules.values())
      if (module.rank === view.rank && !rows.has(module.id)) {
        this.without++;
        if (this.everything || this.find) rows.set(module.id, {module, forward: null, backward: null, own: null, whole: null});
      }
    this.shown = [view, step];
    this.nest(rows);
    const found = [...rows.values()];
    found.sort((a, b) => a.module.id - b.module.id);
    found.forEach((row, i) => Object.assign(row, {order: i, params: row.module.params, buffers: row.module.buffers}));
    this.rows = found;
    this.filter(this.find);
  }

  // A search finds modules without a peak, too.
  filter(text) {
    const began = (text !== "") !== (this.find !== "");
    this.find = text;
    if (began && this.shown) return this.show(...this.shown);
    const words = text.toLowerCase();
    const found = (this.rows || []).filter((row) => `${row.module.fqn} ${row.module.class}`.toLowerCase().includes(words));
    this.table.show(found);
    if (!found.length && text)
      this.table.box.append(element("p", {class: "quiet", role: "status"}, `No module of this rank has ‘${text}’ in its name or class`));
    if (this.without && !text)
      this.table.box.append(element("button", {type: "button", class: "more", onclick: () => {
        this.everything = !this.everything;
        this.show(...this.shown);
      }}, this.everything ? "Hide modules without a peak" : `Show ${plural(this.without, "module")} without a peak of their own`));
  }
}
