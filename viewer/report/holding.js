"use strict";
/*
 * Who holds memory as a tree: by module and then line, by call stack, or by category. A node is
 *
 *   {key, label, title, bytes, allocations, parts: Map of category to bytes, operators: Map likewise, children: Map of key to
 *    node, index: place in a list of modules, or null}
 */

const NO_MODULE = "no module", NO_LINE = "line not recorded", NO_CODE = "no Python code";

function newNode(key, label, title, index) {
  return {key, label, title: title || label, index: index ?? null, bytes: 0, allocations: 0, parts: new Map(), operators: new Map(), children: new Map()};
}

function addTo(map, key, bytes) {
  map.set(key, (map.get(key) || 0) + bytes);
}

class HoldingTree {
  constructor(code, modules) {
    Object.assign(this, {code, modules});
  }

  // by: "module", "stack" or "category". rows as of CodeMoments.rows, without a site where lines are not known.
  build(rows, by, {name, fold, whole}) {
    const root = newNode("", name);
    for (const row of rows) {
      if (row.bytes <= 0) continue;
      this.add(root, row, this.path(row, by, whole));
    }
    if (fold) foldEqual(root);
    return root;
  }

  path(row, by, whole) {
    const category = {key: `c${row.category}`, label: row.category};
    const detail = row.detail ? [{key: `d${row.detail}`, label: row.detail}] : [];
    if (by === "stack") return [...this.stackPath(row.site, whole), category];
    if (by === "category") return [category, ...detail, ...this.modulePath(row.module), ...this.linePath(row)];
    return [...this.modulePath(row.module), ...this.linePath(row), category, ...detail];
  }

  // The modules around one and itself. Lists of modules (ModuleList and its kind) have no frame: their members are named with them.
  modulePath(id) {
    if (id === null || !this.modules.get(id)) return [{key: "m", label: NO_MODULE}];
    const found = [];
    for (let at = this.modules.get(id), below = null; at; below = at, at = this.modules.get(at.parent))
      if (at.id === id || !isInnerList(at)) found.push(this.modulePart(at));
    return found.reverse();
  }

  modulePart(module) {
    const above = this.modules.get(module.parent);
    let outer = above;
    while (outer && isInnerList(outer)) outer = this.modules.get(outer.parent);
    const prefix = outer && outer.fqn ? `${outer.fqn}.` : "";
    const label = module.fqn ? (module.fqn.startsWith(prefix) ? module.fqn.slice(prefix.length) : module.fqn) : module.label;
    const index = above && isList(above) ? /^(.*\.)?(\d+)$/.exec(label) : null;
    return {key: `m${module.id}`, label, title: `${module.name}${module.class ? ` (${module.class})` : ""}`,
            index: index ? {prefix: index[1] || "", number: Number(index[2]), list: module.parent, class: module.class} : null};
  }

  linePath({site, sited}) {
    if (sited === false) return [];
    if (!site) return [{key: "l", label: NO_LINE}];
    if (!site.line) return [{key: "p", label: NO_CODE}];
    return [{key: `l${site.line.file}:${site.line.line}:${site.line.name}`, label: `${frameLine(site.line)} ${site.line.name}`,
             title: `${frameLine(site.line, true)} in ${site.line.name}`}];
  }

  stackPath(site, whole) {
    if (!site) return [{key: "l", label: NO_LINE}];
    const frames = site.frame ? this.code.stack(site.frame) : [], users = frames.filter((frame) => frame.users);
    const path = (whole || !users.length ? frames : users).map((frame) => ({
      key: `f${frame.file}:${frame.line}:${frame.name}`, label: `${frame.name} ${frameLine(frame)}`, title: `${frame.name}, ${frameLine(frame, true)}`}));
    if (!path.length) path.push({key: "p", label: NO_CODE});
    const of = site.of === "forward" ? " (backward)" : site.of === "waiting" ? " (waited for)" : "";
    if (site.operator || of) path.push({key: `o${site.operator}${of}`, label: `${site.operator || "no operator"}${of}`});
    return path;
  }

  add(root, row, path) {
    let node = root;
    this.count(node, row);
    for (const {key, label, title, index} of path) {
      if (!node.children.has(key)) node.children.set(key, newNode(key, label, title, index));
      node = node.children.get(key);
      this.count(node, row);
    }
  }

  count(node, row) {
    node.bytes += row.bytes;
    node.allocations += row.allocations || 0;
    addTo(node.parts, row.category, row.bytes);
    if (row.site?.operator) addTo(node.operators, `${row.site.operator}${row.site.of === "forward" ? " (backward)" : ""}`, row.bytes);
  }
}

function isInnerList(module) {
  return isList(module) && module.parent !== null;
}

function isList(module) {
  return ["ModuleList", "ModuleDict", "Sequential"].includes(module.class);
}

// What has to be equal for siblings to be one: everything below, to the byte, but the name of the list's member.
function shape(node, inside) {
  const below = [...node.children.values()].map((child) => shape(child, true)).sort();
  const name = node.index ? node.index.class : inside && node.key[0] === "m" ? node.label : inside ? node.key : "";
  return `${name}|${node.bytes}|${node.allocations}|${[...node.parts].sort()}(${below})`;
}

// Members of a list of modules that are equal become one: "blocks.0–23 × 24".
function foldEqual(node) {
  const groups = new Map();
  for (const child of node.children.values()) {
    foldEqual(child);
    if (!child.index) continue;
    const key = `${child.index.list}|${shape(child)}`;
    groups.set(key, [...(groups.get(key) || []), child]);
  }
  for (const members of groups.values()) {
    if (members.length < 2) continue;
    members.sort((a, b) => a.index.number - b.index.number);
    const {prefix} = members[0].index, runs = formatRuns(members.map((child) => child.index.number));
    const folded = merged(members, `${members[0].key}×`, `${prefix}${runs} × ${members.length}`);
    folded.title = `${folded.label}${members[0].index.class ? ` (${members[0].index.class})` : ""}`;
    folded.each = {count: members.length, bytes: members[0].bytes};
    for (const member of members) node.children.delete(member.key);
    node.children.set(folded.key, folded);
  }
}

// Equal nodes as one, and so with what is below them.
function merged(nodes, key, label) {
  const found = newNode(key, label, nodes[0].title);
  for (const node of nodes) {
    found.bytes += node.bytes;
    found.allocations += node.allocations;
    for (const [category, bytes] of node.parts) addTo(found.parts, category, bytes);
    for (const [operator, bytes] of node.operators) addTo(found.operators, operator, bytes);
  }
  const like = (child) => (child.key[0] === "m" ? child.label : child.key);
  for (const child of nodes[0].children.values()) {
    const same = nodes.map((node) => [...node.children.values()].find((other) => like(other) === like(child)));
    const one = merged(same, child.key, child.label);
    one.title = child.key[0] === "m" ? child.label : child.title;
    found.children.set(one.key, one);
  }
  return found;
}
