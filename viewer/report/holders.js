"use strict";
// Who holds memory at the chosen moment, as an icicle: by module and line, by stack, by category; also for refusals and growth.

const REFUSALS_MOST = 20; // in the list of moments; others are chosen in the timeline

// "of step 3", "of the time before step 0", "in a job without steps".
function momentPlace({step, place}) {
  return step !== null ? `of step ${step}` : place.startsWith("in ") ? place : `of the time ${place}`;
}

class HoldersPart {
  constructor(app, section) {
    this.app = app;
    this.section = section;
    this.code = new CodeMoments(app.run.code, app.run.samples);
    this.tree = new HoldingTree(this.code, app.modules.modules);
    this.by = "module";
    const part = (name) => section.querySelector(`[data-part=${name}]`);
    this.lead = part("lead");
    this.note = part("note");
    this.select = part("moment");
    this.matches = part("matches");
    this.request = part("request");
    this.icicle = new Icicle(part("icicle"), part("trail"), part("said"), (node) => this.tip(node), () => app.remember());
    this.lines = new SortedTable(part("lines"), [
      {name: "Line", value: (row) => row.title, cell: (row) => element("span", {class: "fqn", title: row.title}, row.label)},
      {name: "Most of it", value: (row) => largestPart(row.parts)[0], cell: (row) => named(categoryColour(largestPart(row.parts)[0]), largestPart(row.parts)[0])},
      {name: "Bytes", number: true, value: (row) => row.bytes, cell: (row) => bytesCell(row.bytes)},
      {name: "Share", number: true, value: (row) => row.bytes, cell: (row) => formatShare(row.bytes, this.icicle.root.bytes)},
      {name: "Allocations", number: true, value: (row) => row.allocations, cell: (row) => row.allocations.toLocaleString("en-US")},
    ], {most: 8});
    for (const button of section.querySelectorAll("[data-by]"))
      button.addEventListener("click", () => {
        this.by = button.dataset.by;
        this.draw();
        app.remember();
      });
    for (const box of section.querySelectorAll("input[type=checkbox]")) box.addEventListener("change", () => this.draw());
    this.fold = part("fold");
    this.whole = part("whole");
    this.find = part("find");
    this.find.addEventListener("input", () => this.search());
    this.find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.nextMatch();
    });
    this.select.addEventListener("change", () => this.choose(this.select.value));
  }

  // What can be chosen without the timeline.
  moments(view) {
    const refused = this.code.of(view.rank, "refused"), [growth] = this.code.of(view.rank, "growth");
    return [
      ...(view.life ? [{value: "life", text: `Peak of its life: ${peakPlace(view.life)}`, at: view.life.peak_at, step: view.life.step}] : []),
      ...(view.highest && view.life?.step === null ? [{value: "step", text: `Highest step: ${view.highest.step}`, at: view.highest.peak_at, step: view.highest.step}] : []),
      ...refused.slice(-REFUSALS_MOST).map((moment, i) => ({value: `refused${i}`, at: moment.at, step: moment.step,
        text: `Refused: ${formatBytes(moment.other)}${moment.step === null ? "" : ` in step ${moment.step}`}`})),
      ...(growth && growth.offset >= 0 ? [{value: "growth", text: `Growth ${growth.place}`, growth}] : []),
    ];
  }

  choose(value) {
    const chosen = this.choices.find((choice) => choice.value === value);
    if (!chosen) return;
    if (chosen.growth) this.show(this.app.view, this.app.at, chosen.growth);
    else this.app.showPlace(chosen.at, chosen.step);
  }

  show(view, at, growth) {
    this.section.hidden = !view.recorded;
    if (!view.recorded) return;
    const step = stepAt(view, at), {memory} = view;
    this.sited = this.app.run.byRank.sited.get(view.rank)?.[0];
    this.moment = growth || this.code.at(view.rank, at, step);
    const rows = this.moment && this.code.rows(this.moment);
    this.rows = rows || memory.ownersAt(at).map((owner) => ({...owner, site: null, sited: false}));
    this.hasLines = Boolean(rows);
    this.choices = this.moments(view);
    const here = growth ? "growth" : this.choices.find((choice) => choice.at === at)?.value || "";
    this.select.replaceChildren(element("option", {value: "", disabled: here !== ""}, "As chosen in the timeline"),
                                ...this.choices.map(({value, text}) => element("option", {value}, text)));
    this.select.value = here;
    this.shown = {view, at, step};
    this.draw();
  }

  draw() {
    for (const button of this.section.querySelectorAll("[data-by]")) {
      button.setAttribute("aria-pressed", button.dataset.by === this.by);
      button.disabled = button.dataset.by === "stack" && !this.hasLines;
    }
    const by = this.by === "stack" && !this.hasLines ? "module" : this.by;
    this.fold.parentElement.hidden = by === "stack";
    this.whole.parentElement.hidden = by !== "stack";
    const root = this.tree.build(this.rows, by, {name: this.moment?.kind === "growth" ? "growth" : "allocated", fold: this.fold.checked, whole: this.whole.checked});
    this.icicle.box.setAttribute("aria-label", `Who holds memory, by ${by === "stack" ? "call stack" : by === "category" ? "category" : "module and line"}`);
    this.section.querySelector("[data-part=picture]").hidden = root.bytes === 0;
    if (root.bytes) this.icicle.show(root, this.app.layers.concat([...root.parts.keys()].filter((name) => !this.app.layers.includes(name))));
    this.describe(root);
    if (root.bytes) this.search();
    const table = this.section.querySelector("[data-part=table]");
    table.hidden = !this.hasLines || !root.bytes;
    if (!table.hidden) this.lines.show(this.byLine());
  }

  // As 'shardledger peaks --by line' has them.
  byLine() {
    const root = newNode("", "");
    for (const row of this.rows) if (row.bytes > 0) this.tree.add(root, row, this.tree.linePath(row));
    return [...root.children.values()].sort((a, b) => b.bytes - a.bytes);
  }

  describe(root) {
    const {view, at} = this.shown, {moment} = this;
    const bytes = `${formatBytes(root.bytes)} (${formatExact(root.bytes)})`;
    if (moment?.kind === "growth")
      this.lead.textContent = `What owners that grow made ${moment.place} and still held at the end of step ${moment.step}: ${bytes}${
        moment.other === moment.bytes ? "" : `; ${formatBytes(moment.bytes - moment.other)} of theirs from before is gone`}.`;
    else if (moment?.kind === "refused") this.lead.textContent = `Alive on rank ${view.rank} when ${formatBytes(moment.other)} were refused: ${bytes}.`;
    else if (moment) this.lead.textContent = `Alive on rank ${view.rank} at the highest point ${momentPlace(moment)}: ${bytes}.`;
    else this.lead.textContent = `Alive on rank ${view.rank} at the chosen moment, ${this.app.place(at).text}: ${bytes}.`;
    const site = moment?.kind === "refused" ? this.code.sites[moment.site] : null;
    this.request.hidden = !site?.frame;
    if (site?.frame) this.showRequest(site, moment);
    this.explain(root);
  }

  // The stack of the request itself.
  showRequest(site, moment) {
    const frames = this.code.stack(site.frame), users = frames.filter((frame) => frame.users), told = users.length ? users : frames;
    this.request.replaceChildren(`The request for ${formatBytes(moment.other)} came from `,
      ...told.flatMap((frame, i) => [i ? " › " : "", element("span", {class: "fqn", title: frame.file}, `${frame.name} ${frameLine(frame)}`)]), site.operator ? ` (${site.operator}).` : ".");
  }

  // Why there are no lines, or how to come to some.
  explain(root) {
    const {view, at, step} = this.shown, parts = [];
    if (!this.sited?.sites)
      parts.push(`No lines of code: ${this.sited?.state === "failed" ? `taking call stacks failed (${this.sited.reason})` : this.sited?.state ? "no call stack was recorded" :
        "call stacks were not recorded here"}; SHARDLEDGER_STACKS=auto, which is the default, records them where the torch bridge is there (shardledger doctor).`);
    else if (this.moment && !this.hasLines)
      parts.push(`The lines of this moment are not in the page: ${this.moment.step !== null ? `shardledger report --step ${this.moment.step} has them, and shardledger peaks --by stack --step ${this.moment.step}.` : "shardledger peaks --by stack has them."}`);
    else if (!this.moment) {
      const nearest = this.code.nearest(view.rank, at, step, false);
      parts.push("Lines are known at the highest point of each period and at refused requests. ");
      if (nearest) parts.push(element("button", {type: "button", onclick: () => this.app.select(nearest.at)}, `Lines at the highest point ${momentPlace(nearest)}`));
    }
    const without = this.hasLines ? this.rows.filter((row) => !row.site?.line).reduce((sum, row) => sum + row.bytes, 0) : 0;
    if (without) parts.push(`${formatBytes(without)} (${formatShare(without, root.bytes)}) have no line: made before recording began, where no Python code ran, or in a step without call stacks (SHARDLEDGER_STACKS=all).`);
    if (this.moment && this.moment.kind !== "growth" && this.hasLines && this.moment.bytes !== root.bytes)
      parts.push(` It is ${formatExact(root.bytes)} by line, ${formatExact(this.moment.bytes)} in all.`);
    this.note.replaceChildren(...parts);
    this.note.hidden = !parts.length;
  }

  tip(node) {
    const operators = [...node.operators].sort((a, b) => b[1] - a[1]).slice(0, 3);
    return operators.length ? [element("div", {class: "quiet"}, `by ${operators.map(([name, bytes]) => `${name} ${formatBytes(bytes)}`).join(", ")}`)] : [];
  }

  search() {
    if (this.find.value.trim() === "") this.match = -1;
    const {frames, bytes} = this.icicle.search(this.find.value);
    this.matches.textContent = this.find.value.trim() === "" ? "" : frames
      ? `${plural(frames, "frame")}, ${formatBytes(bytes)} (${formatShare(bytes, this.icicle.root.bytes)})` : "nothing";
  }

  // From match to match, those that are in the picture.
  nextMatch() {
    const drawn = this.icicle.frames.filter((frame) => this.icicle.found.has(frame.node));
    if (!drawn.length) return;
    this.match = ((this.match ?? -1) + 1) % drawn.length;
    drawn[this.match].element.scrollIntoView({block: "nearest"});
    this.icicle.tell(drawn[this.match]);
    for (const frame of this.icicle.frames) frame.element.classList.toggle("here", frame === drawn[this.match]);
  }
}
