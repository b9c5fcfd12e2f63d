"use strict";
// What would have helped the first rank that died of a refused request, as 'shardledger advise' says it.

const ADVICE_ROWS = 6;

function showAdvice(run) {
  const {advice} = run;
  if (!advice) return;
  const heading = element("b", {}, `What would help rank ${advice.rank}${advice.step === null ? "" : ` in step ${advice.step}`}`);
  const box = element("div", {class: "alert", id: "advice"}, heading);
  document.getElementById("alerts").append(box);
  if (advice.why) {
    box.append(`: no advice: ${advice.why}`);
    return;
  }
  const lines = advice.lines.split("\n").map((line) => line.trim()).filter(Boolean);
  box.append(...lines.map((line) => element("div", {class: "note"}, line)));
  const isAble = (item) => item.fits !== "refused" && (!item.why || item.standing === "not predicted");
  const all = advice.said.advice, able = all.filter(isAble), shown = able.slice(0, ADVICE_ROWS);
  if (!shown.length) box.append(element("div", {}, "Nothing that is known of would help."));
  else box.append(element("div", {class: "scroll"}, adviceTable(shown)));
  const [first] = shown;
  if (first && first.code && !["no", "hardly"].includes(first.fits))
    box.append(element("div", {}, "To paste, of the first:"), element("pre", {}, first.code));
  const rest = able.length - shown.length, helpless = all.length - able.length;
  const more = [rest && `${plural(rest, "more change")} that may help less`, helpless && `${plural(helpless, "change")} that can’t help, and why`];
  box.append(element("div", {class: "note"}, ...(rest || helpless ? [`${more.filter(Boolean).join("; ")}: `] : ["The same, with all figures: "]), element("code", {}, "shardledger advise")));
}

function adviceTable(rows) {
  const bytes = (value) => (value === null ? "–" : bytesCell(value));
  const after = (item) => (item.after_most_bytes === null ? bytes(item.after_bytes) :
    element("span", {title: `${formatExact(item.after_bytes)} to ${formatExact(item.after_most_bytes)}`}, `${formatBytes(item.after_bytes)} to ${formatBytes(item.after_most_bytes)}`));
  return plainTable(["Change", "Fits", "Is about", "Allocated before", "After", "Standing", "Time a step"], rows.map((item) => [
    item.what, item.fits_words, bytes(item.about_bytes), bytes(item.before_bytes), after(item), item.standing, item.costs]), [2, 3, 4]);
}
