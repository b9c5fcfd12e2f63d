"use strict";
// The whole device: who holds what of it.

// PyTorch's in blue, libraries' in orange, CUDA's own in grey.
const DEVICE_COLOURS = {allocated: "#0b5c9e", cublas_workspace: "#3f8cc9", pending: "#74b3de", cached: "#a8d2ee", private_pools: "#c9e4f5",
                        pytorch: "#0b5c9e", pytorch_other: "#74b3de", nccl: "#d55e00", cublas: "#e69f00", cudnn: "#f3cf78",
                        driver_pools: "#8b7bb8", cuda_context: "#4a5a68", context_and_code: "#4a5a68", gpu_code: "#98a1ab",
                        other_processes: "#b1568a"};

// Who holds the device: the sample nearest to the selected moment, and all samples of the rank.
class DevicePart {
  constructor(run, box, onMoment) {
    this.meaning = new Map(run.device_meaning.map((row) => [row.owner, row.meaning]));
    this.owners = [...this.meaning.keys()].filter((owner) => owner !== "used");
    this.table = element("div", {class: "scroll"});
    this.chart = element("div", {class: "chart"});
    box.append(this.table, this.chart);
    box.parentElement.hidden = !run.device_samples.length;
    this.bars = new StackedBars(this.chart, 170, {
      select: (row) => onMoment(row.sample.at),
      tip: (row, event) => showTip(event, element("b", {}, `${formatBytes(row.sample.used)} in use, in ${this.where(row.sample)}`),
        partRows(this.owners.map((owner, i) => [owner, row.parts[i], this.fill(owner)]), row.sample.used))});
  }

  fill(owner) {
    return DEVICE_COLOURS[owner] || (owner === "unexplained" ? colour("--ink") : "#a793d1");
  }

  where(sample) {
    const step = stepAt(this.view, sample.at);
    return step ? `step ${step.step}` : `no step, ${formatTime(sample.at)} into the run`;
  }

  show(view) {
    this.view = view;
    const rows = view.samples.map((sample, x) => {
      const held = new Map((view.balance.get(sample.at) || []).map((row) => [row.owner, row.bytes]));
      return {x, sample, parts: this.owners.map((owner) => Math.max(0, held.get(owner) || 0)), lines: []};
    });
    this.bars.show(rows, this.owners.map((owner) => ({fill: this.fill(owner)})), [], (x) => {
      const step = view.samples[x] && stepAt(view, view.samples[x].at);
      return step ? `step ${step.step}` : "";
    });
  }

  select(at) {
    const {view} = this, lead = document.getElementById("device-lead");
    // Of the same step if there is one, which was mostly taken at the step's end; else the nearest.
    const step = stepAt(view, at);
    const distance = (sample) => Math.abs(sample.at - at) + (step && stepAt(view, sample.at) !== step ? step.end - step.start : 0);
    let i = Math.max(0, lastNotAbove(view.samples.length, (n) => view.samples[n].at, at));
    if (view.samples[i + 1] && distance(view.samples[i + 1]) < distance(view.samples[i])) i++;
    const sample = view.samples[i];
    if (!sample) {
      lead.textContent = `The device was not sampled on rank ${view.rank}.`;
      this.table.replaceChildren();
      return;
    }
    this.bars.choose(i);
    lead.textContent = `${formatBytes(sample.used)} of ${formatBytes(sample.total)} in use on rank ${view.rank}, sampled in ${this.where(sample)}. Click a bar for another sample.`;
    const sum = (view.balance.get(sample.at) || []).reduce((all, row) => all + row.bytes, 0);
    if (sum !== sample.used) lead.textContent += ` What is known of the owners adds up to ${formatBytes(sum)}: they were not all measured in the same instant.`;
    const first = view.balance.get(view.samples[0].at) || [];
    const owners = (view.balance.get(sample.at) || []).slice().sort((a, b) => this.owners.indexOf(a.owner) - this.owners.indexOf(b.owner));
    const table = plainTable(["Owner", "Bytes", "Share", "Since the first sample", "What it is"], owners.map((row) => {
      const before = first.find((other) => other.owner === row.owner)?.bytes || 0, change = row.bytes - before;
      return [named(this.fill(row.owner), row.owner), bytesCell(row.bytes), formatShare(row.bytes, sample.used),
              element("span", {title: formatExact(change)}, change === 0 ? "–" : `${change > 0 ? "+" : ""}${formatBytes(change)}`),
              element("span", {class: "quiet"}, this.meaning.get(row.owner) || "")];
    }), [1, 2, 3]);
    table.append(element("tfoot", {}, element("tr", {}, element("th", {scope: "row"}, "used"), element("td", {class: "number"}, bytesCell(sample.used)),
                                              element("td", {class: "number"}, "100.0%"), element("td"), element("td", {class: "quiet"}, this.meaning.get("used") || ""))));
    this.table.replaceChildren(table);
  }
}
