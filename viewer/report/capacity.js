"use strict";
// The device at the answer's moment as one bar: PyTorch's part to the byte, the others' as they were sampled, and what is free.

const CAPACITY_PARTS = [["nccl", "NCCL"], ["context", "CUDA context, code, libraries"], ["others", "other processes"], ["unexplained", "unexplained"]];

// {title, whole, parts: [{name, bytes, fill, note}], notes}, or null where nobody knows anything of it.
function capacityOf(run, limit) {
  const {segments} = run.answer, [at] = run.answer_at, [sample] = run.answer_sample;
  if (!at || (!segments && !sample)) return null;
  const sum = (part) => run.answer_device.filter((row) => row.part === part).reduce((all, row) => all + row.bytes, 0);
  const fills = DEVICE_COLOURS;
  const ours = segments ? [
    {name: "allocated", bytes: segments.allocated, fill: fills.allocated},
    {name: "freed, but a stream still uses it", bytes: segments.pending, fill: fills.pending},
    {name: "cached by PyTorch", bytes: segments.cached, fill: fills.cached, note: `largest free block ${formatBytes(segments.largest_free)}`}]
    : run.answer_device.filter((row) => row.part === "pytorch").map((row) => ({name: row.owner.replaceAll("_", " "), bytes: row.bytes, fill: fills[row.owner]}));
  if (limit && segments)
    return {whole: limit, parts: [...ours, {name: "still allowed", bytes: limit - segments.reserved, fill: null}],
            title: `PyTorch’s part, of the ${formatBytes(limit)} that this process may take`, notes: []};
  if (!sample)
    return {whole: segments.reserved, parts: ours, title: "What PyTorch reserved", notes: ["the rest of the device was not sampled"]};
  const others = CAPACITY_PARTS.map(([part, name]) => ({name, bytes: sum(part), fill: {nccl: fills.nccl, context: fills.cuda_context, others: fills.other_processes, unexplained: "#98a1ab"}[part]}));
  const used = [...ours, ...others].reduce((all, part) => all + part.bytes, 0), exact = sample.apart_ns === 0 || !segments;
  const notes = [];
  if (!segments) notes.push(`as sampled ${apart(sample.apart_ns)}`);
  else if (!exact) notes.push(`what is not PyTorch’s was sampled ${apart(sample.apart_ns)}, so what is free is an estimate`);
  return {whole: Math.max(sample.total, used), title: `The device, ${formatBytes(sample.total)}`, notes,
          parts: [...ours, ...others, {name: exact ? "free" : "free, about", bytes: sample.total - used, fill: null}]};
}

function apart(ns) {
  return ns === 0 ? "then" : `${formatTime(Math.abs(ns))} ${ns < 0 ? "before" : "after"}`;
}

function showCapacity(run, box, limit) {
  const capacity = capacityOf(run, limit);
  box.hidden = !capacity;
  if (!capacity) return;
  const shown = capacity.parts.filter((part) => part.bytes !== 0), when = run.answer_at[0].kind === "refused" ? "when memory ran out" : "at the peak";
  box.replaceChildren(element("h3", {}, `${capacity.title}, ${when}`, capacity.notes.length ? element("span", {class: "quiet"}, `: ${capacity.notes.join("; ")}`) : null),
    stackedBar(shown.map((part) => ({...part, fill: part.fill || "transparent"})), capacity.whole),
    element("div", {class: "legend"}, ...shown.map((part) => element("span", {class: "named"}, swatch(part.fill || "var(--grid)"),
      element("span", {}, `${part.name} `, element("b", {title: formatExact(part.bytes), "data-bytes": part.bytes}, formatBytes(part.bytes)),
              part.note ? element("span", {class: "quiet"}, `, ${part.note}`) : null)))));
}
