"use strict";
// Run against run, as 'shardledger diff' tells it: a table for each kind of thing that differs, the largest change first.

const DIFF_KINDS = [["category", "Categories at the peak"], ["line", "Lines of code at the peak"], ["module", "Modules: the device’s peak while they ran, and what they owned"],
                    ["step", "Peak of each step"], ["period", "Peaks outside of steps"]];

function showDiff(run) {
  const section = document.getElementById("run-diff"), {diff} = run;
  section.hidden = !diff;
  if (!diff) return;
  const rows = diff.rows.changes, [first, ...more] = linesOf(diff.line);
  document.getElementById("run-diff-title").textContent = `Against ${diff.before.replace(/\/+$/, "").split("/").pop()}`;
  document.getElementById("run-diff-lead").textContent = [`${first}.`, ...more.map((line) => `${line}.`), "A is the run before, B this one."].join(" ");
  const box = document.getElementById("run-diff-tables");
  if (!rows.length) box.append(element("p", {}, "Nothing differs."));
  for (const [what, heading] of DIFF_KINDS) {
    const those = rows.filter((row) => row.what === what);
    if (!those.length) continue;
    const table = element("div", {class: "scroll"});
    box.append(element("h3", {}, heading), table);
    new SortedTable(table, diffColumns(those), {most: 10, atMost: 1000}).show(those);
  }
}

// Those that the rows have something in.
function diffColumns(rows) {
  const has = (name) => rows.some((row) => row[name] !== null), text = (name, title, cell) => has(name) && {name: title, value: (row) => row[name], cell: cell || ((row) => row[name] ?? "–")};
  const bytes = (name, title) => has(name) && {name: title, number: true, value: (row) => row[name], cell: (row) => (row[name] === null ? "–" : bytesCell(row[name]))};
  const change = (name, title) => has(name) && {name: title, number: true, value: (row) => (row[name] === null ? null : Math.abs(row[name])), cell: (row) => (row[name] === null ? "–" : changeCell(row[name]))};
  const code = (name) => (row) => element("span", {class: "fqn"}, ...breakable(row[name] ?? "–"));
  return [text("ranks", "Rank"), text("step_a", "Step A"), text("step_b", "Step B"), text("period_a", "Period A"), text("period_b", "Period B"), text("line", "Line", code("line")),
          text("module", "Module", code("module")), text("phase", "Phase"), text("category", "Category", (row) => named(categoryColour(row.category), row.category)),
          bytes("a_bytes", "A"), bytes("b_bytes", "B"), change("change_bytes", "Change"), bytes("a_own_bytes", "Own in A"), bytes("b_own_bytes", "Own in B"), change("own_change_bytes", "Own change")].filter(Boolean);
}
