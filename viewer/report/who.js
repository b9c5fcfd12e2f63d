"use strict";
// Who held it: a bar by category, tinted by what became of it, with the largest owners in words; equal layers are one owner.

const WHO_ROWS = 7;

// Owners with the same share of equal members of a list of modules are one: {module: "blocks.0–23.up", count, bytes of all}.
function foldOwners(rows, modules) {
  const groups = new Map();
  for (const row of rows) {
    const member = listMember(modules, row.module);
    const key = member ? [row.category, row.detail, member.list, member.rest, row.bytes, row.allocations, row.freed, row.grows].join("|") : null;
    const found = key && groups.get(key);
    if (found) {
      found.count++;
      found.numbers.push(member.number);
      for (const name of ["bytes", "allocations", "freed", "grows"]) if (row[name] !== null) found[name] += row[name];
    } else {
      groups.set(key || groups.size, {...row, each: row.bytes, count: 1, member, numbers: member ? [member.number] : []});
    }
  }
  return [...groups.values()].map((group) => ({...group, label: ownerLabel(group, modules)})).sort((a, b) => b.bytes - a.bytes);
}

// The outermost list of modules that one is in: which member, and the path below that.
function listMember(modules, id) {
  let found = null;
  for (let at = modules.get(id); at; at = modules.get(at.parent)) {
    const above = modules.get(at.parent);
    const place = above && isList(above) ? /^(.*?)(\d+)$/.exec(at.fqn) : null;
    if (place) found = {list: above.id, prefix: place[1], number: Number(place[2]), rest: modules.get(id).fqn.slice(at.fqn.length)};
  }
  return found;
}

function ownerLabel({module, member, numbers, count}, modules) {
  if (count > 1) return `${member.prefix}${formatRuns(numbers.sort((a, b) => a - b))}${member.rest}`;
  const found = modules.get(module);
  return found ? found.label || found.class || "the root" : "no module";
}

// What became of what was alive, in words: {freed, kept, grows} or null where that is not known.
function fates(run) {
  const rows = run.answer_owners, [at] = run.answer_at;
  if (!rows.length || rows.some((row) => row.grows === null)) return null;
  const sum = (name) => rows.reduce((all, row) => all + (row[name] ?? 0), 0);
  const whole = rows.some((row) => row.freed === null), freed = sum("freed"), grows = sum("grows");
  const period = at.step !== null ? `step ${at.step}` : at.place;
  return {freed: whole ? null : freed, grows, kept: sum("bytes") - freed - grows, period};
}

// A bar with the parts that are freed, stay and grow told apart by their pattern.
function fateBar(row, most, fill) {
  const part = (bytes, kind) => (bytes > 0 ? element("span", {class: kind, style: {width: `${(bytes / most) * 100}%`, backgroundColor: fill}}) : null);
  const {freed, grows} = row, stays = row.bytes - (freed || 0) - (grows || 0);
  return element("span", {class: "fate", "aria-hidden": "true"}, part(grows, "grows"), part(stays, "stays"), part(freed, "freed"));
}

function showWho(run, box, modules, onPick) {
  const owners = foldOwners(run.answer_owners, modules), [at] = run.answer_at;
  box.hidden = !owners.length;
  if (!owners.length) return;
  const categories = [...groupBy(owners, "category")].map(([category, rows]) => {
    const sum = (name) => (rows.some((row) => row[name] === null) ? null : rows.reduce((all, row) => all + row[name], 0));
    return {category, rows, bytes: sum("bytes"), freed: sum("freed"), grows: sum("grows")};
  }).sort((a, b) => b.bytes - a.bytes);
  const most = categories[0].bytes, shown = categories.slice(0, categories.length > WHO_ROWS + 1 ? WHO_ROWS : WHO_ROWS + 1), rest = categories.slice(shown.length);
  const meaning = new Map(run.categories.map((row) => [row.name, row.meaning]));
  const before = new Map((run.answer.dead.categories || []).map((row) => [row.category, row.change_bytes]));
  const lines = shown.map((row) => element("tr", {},
    element("th", {scope: "row"}, element("button", {type: "button", title: meaning.get(row.category) || "a word of your own", onclick: () => onPick(row.category)}, swatch(categoryColour(row.category)), row.category)),
    element("td", {}, fateBar(row, most, categoryColour(row.category))),
    element("td", {class: "number"}, bytesCell(row.bytes)),
    element("td", {class: "number"}, formatShare(row.bytes, at.allocated)),
    element("td", {class: "words"}, ownerWords(row, at.kind === "refused" ? before.get(row.category) : null))));
  const said = fates(run);
  box.replaceChildren(element("h3", {}, at.kind === "refused" ? `Who held memory on rank ${at.rank} then` : `Who held it${at.ranks > 1 ? ` on rank ${at.rank}` : ""}`),
    element("table", {class: "who"}, element("tbody", {}, ...lines)),
    rest.length ? element("div", {class: "quiet"}, `${plural(rest.length, "smaller category").replace("categorys", "categories")}: ${formatBytes(rest.reduce((all, row) => all + row.bytes, 0))}`) : "",
    said ? element("div", {class: "quiet fates"}, ...fateWords(said)) : "",
    at.kind === "refused" && run.answer.dead.categories?.[0]?.compared_with ? element("div", {class: "quiet"}, `Changes are against the highest point of: ${run.answer.dead.categories[0].compared_with}`) : "");
}

function fateWords({freed, kept, grows, period}) {
  const word = (kind, bytes, text) => element("span", {class: "named"}, element("span", {class: `swatch fate-${kind}`, "aria-hidden": "true"}), element("span", {}, `${formatBytes(bytes)} ${text}`));
  return [freed ? word("freed", freed, `is freed in ${/^(step|in) /.test(period) ? period.replace(/^in /, "") : `the time ${period}`}`) : null,
          kept && freed !== null ? word("stays", kept, "outlives it") : null,
          grows ? word("grows", grows, "is of owners that grow") : null].filter(Boolean);
}

// "blocks.0–23.up × 24, 128.0 MiB each", with how the category changed since the step before.
function ownerWords(row, change) {
  const [first] = row.rows;
  const of = first.count > 1 ? ` × ${first.count}, ${formatBytes(first.each)} each` : first.bytes === row.bytes ? "" : ` ${formatBytes(first.bytes)}`;
  const more = row.rows.length - 1;
  return [change ? element("span", {class: change > 0 ? "more-than" : "quiet", title: formatExact(change)}, `${change > 0 ? "+" : ""}${formatBytes(change)}; `) : "",
          element("span", {class: "fqn"}, ...breakable(first.label)), `${of}${first.detail ? ` (${first.detail.replaceAll("_", " ")})` : ""}`,
          more ? element("span", {class: "quiet"}, `, ${plural(more, "other owner")}`) : ""].reduce((made, part) => (made.append(part), made), element("span", {}));
}
