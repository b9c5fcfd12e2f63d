"use strict";
// What would help, as 'shardledger advise' says it: a few changes on the first screen, and the whole table below.

const ADVICE_ROWS = 6, TODO_ROWS = 3;

// Those that can be had and may help.
function ableAdvice(said) {
  return said.advice.filter((item) => item.fits !== "refused" && (!item.why || item.standing === "not predicted"));
}

// On the first screen: of a job that fits those that lower it most; else in the order of the command.
function showTodo(run, box) {
  const {advice} = run, grown = growing(run);
  const items = [];
  if (grown) {
    const [line, ...more] = linesOf(run.answer.grows);
    items.push(element("li", {}, element("b", {}, "Stop the growth"), element("div", {}, `${line}${grown.code_line ? `, made at ${grown.code_line}` : ""}.`), ...more.map((text) => element("div", {class: "quiet"}, text))));
  }
  const goal = advice.said?.goal[0], able = advice.said ? ableAdvice(advice.said) : [];
  const lower = able.filter((item) => item.after_bytes !== null && item.after_bytes < item.before_bytes).sort((a, b) => (a.after_most_bytes ?? a.after_bytes) - (b.after_most_bytes ?? b.after_bytes));
  const shown = (goal?.fits_already ? lower : able).slice(0, TODO_ROWS);
  items.push(...shown.map(todoItem));
  const words = linesOf(advice.lines).filter((line) => !line.startsWith("Fragmentation"));
  box.replaceChildren(element("h3", {}, goal?.fits_already ? "What to do, if it has to take less" : "What to do"),
    words.length ? element("p", {}, words.map((line) => (/[.:]$/.test(line) ? line : `${line}.`)).join(" ")) : "",
    advice.why ? element("p", {class: "quiet"}, `No advice: ${advice.why}`) : "",
    items.length ? element("ol", {}, ...items) : advice.said ? element("p", {}, goal.fits_already ? "Nothing that is known of would lower it." : "Nothing that is known of would help.") : "",
    advice.said ? element("a", {href: "#advice", onclick: (event) => {
      event.preventDefault(); // the place in the page is kept in the address
      document.getElementById("advice").scrollIntoView();
    }}, "All changes, with figures and what to paste") : "");
}

function todoItem(item) {
  const to = item.after_bytes === null ? null : element("span", {title: afterTitle(item)}, `${formatBytes(item.before_bytes)} → ${afterWords(item)}`);
  const about = to || item.about_bytes === null ? null : element("span", {title: formatExact(item.about_bytes)}, `about ${formatBytes(item.about_bytes)}`);
  const fits = item.fits_words === "-" ? null : element("span", {class: `fits fits-${item.fits}`}, `fits: ${item.fits_words}`);
  const facts = [fits, to, about, item.standing, item.costs && `time: ${item.costs}`].filter(Boolean);
  return element("li", {}, element("b", {}, item.what), element("div", {class: "quiet"}, ...facts.flatMap((fact, i) => [i ? " · " : "", fact])));
}

function afterWords(item) {
  const [least, most] = [item.after_bytes, item.after_most_bytes ?? item.after_bytes].map(formatBytes);
  return least === most ? least : `${least} to ${most}`;
}

function afterTitle(item) {
  return item.after_most_bytes === null ? formatExact(item.after_bytes) : `${formatExact(item.after_bytes)} to ${formatExact(item.after_most_bytes)}`;
}

function showAdvice(run) {
  const {advice} = run, section = document.getElementById("advice"), box = document.getElementById("advice-box");
  section.hidden = !advice.said;
  if (!advice.said) return;
  document.getElementById("advice-title").textContent = `What would help rank ${advice.rank}${advice.refused && advice.step !== null ? ` in step ${advice.step}` : ""}`;
  box.append(...linesOf(advice.lines).map((line) => element("div", {class: "note"}, line)));
  const all = advice.said.advice, able = ableAdvice(advice.said), shown = able.slice(0, ADVICE_ROWS);
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
  const after = (item) => (item.after_most_bytes === null ? bytes(item.after_bytes) : element("span", {title: afterTitle(item)}, afterWords(item)));
  return plainTable(["Change", "Fits", "Is about", "Allocated before", "After", "Standing", "Time a step"], rows.map((item) => [
    item.what, item.fits_words, bytes(item.about_bytes), bytes(item.before_bytes), after(item), item.standing, item.costs]), [2, 3, 4]);
}
