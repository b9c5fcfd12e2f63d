"use strict";
/*
 * A tree of bytes as an icicle: what holds is above what it consists of, as wide as it has bytes. A click makes a frame as wide as
 * the picture; Escape and the path above go back. It is a tree to screen readers and keys as well.
 */

const ROW = 23; // pixels
const THIN = 3; // frames below are one, "smaller"
const LABELLED = 20, WITH_BYTES = 150; // frames of so many pixels

class Icicle {
  // tip(node): more rows for a frame's tooltip.
  constructor(box, trail, said, tip, onZoom) {
    Object.assign(this, {box, trail, said, tip, onZoom, zoomed: [], words: ""});
    box.setAttribute("role", "tree");
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("click", (event) => this.zoomTo(this.under(event)));
    box.addEventListener("mousemove", (event) => this.hover(event));
    box.addEventListener("mouseleave", hideTip);
    box.addEventListener("focusin", (event) => this.tell(this.under(event)));
    box.addEventListener("focusout", () => {
      if (!box.contains(document.activeElement)) this.said.textContent = "";
    });
  }

  // Another tree, to be drawn by search. The same frames stay zoomed to where it has them.
  show(root, layers) {
    Object.assign(this, {root, layers});
    const path = [];
    for (let node = root, i = 0; i < this.zoomed.length; i++) {
      node = node.children.get(this.zoomed[i]);
      if (!node) break;
      path.push(this.zoomed[i]);
    }
    this.zoomed = path;
  }

  // Marks what has the words in it, and draws: {frames, bytes}.
  search(words) {
    this.words = words;
    const wanted = words.trim().toLowerCase();
    this.found = new Set();
    this.foundBytes = 0;
    const visit = (node, counted) => {
      const hit = wanted !== "" && node !== this.root && `${node.label} ${node.title}`.toLowerCase().includes(wanted);
      if (hit) this.found.add(node);
      if (hit && !counted) this.foundBytes += node.bytes;
      for (const child of node.children.values()) visit(child, counted || hit);
    };
    visit(this.root, false);
    this.draw();
    return {frames: this.found.size, bytes: this.foundBytes};
  }

  get path() {
    const nodes = [this.root];
    for (const key of this.zoomed) nodes.push(nodes[nodes.length - 1].children.get(key));
    return nodes;
  }

  draw() {
    const path = this.path, zoom = path[path.length - 1], width = Math.max(200, this.box.clientWidth);
    this.frames = [];
    this.byElement = new Map();
    this.rows = 0;
    path.slice(0, -1).forEach((node, i) => this.place(node, i, 0, 1, path[i - 1] || null, "above", 1, 1, width));
    this.lay(zoom, path.length - 1, 0, 1, path[path.length - 2] || null, 1, 1, width);
    this.box.replaceChildren(...this.frames.map((frame) => frame.element));
    this.box.style.height = `${this.rows * ROW}px`;
    this.box.classList.toggle("searching", this.words.trim() !== "");
    const focus = this.frames.find((frame) => frame.node === zoom);
    focus.element.tabIndex = 0;
    this.showTrail(path);
  }

  lay(node, depth, left, width, above, place, among, pixels) {
    this.place(node, depth, left, width, above, "", place, among, pixels);
    const children = [...node.children.values()], least = (THIN / (width * pixels)) * node.bytes;
    const shown = children.filter((child) => child.bytes >= least).sort(
      (a, b) => b.bytes - a.bytes || (a.index?.number ?? 0) - (b.index?.number ?? 0));
    let at = left, smallBytes = node.bytes;
    shown.forEach((child, i) => {
      const part = (child.bytes / node.bytes) * width;
      this.lay(child, depth + 1, at, part, node, i + 1, shown.length, pixels);
      at += part;
      smallBytes -= child.bytes;
    });
    if (!children.length) return;
    const small = children.length - shown.length;
    const rest = (smallBytes / node.bytes) * width;
    if (rest * pixels >= 1) {
      this.rows = Math.max(this.rows, depth + 2);
      this.frames.push({node: null, element: element("div", {class: "rest", "aria-hidden": "true", title: `${small} smaller: ${formatBytes(smallBytes)}`,
        style: {left: `${at * 100}%`, width: `${rest * 100}%`, top: `${(depth + 1) * ROW}px`}})});
    }
  }

  place(node, depth, left, width, above, kind, place, among, pixels) {
    const [category] = largestPart(node.parts), only = node.parts.size === 1;
    const fill = only ? categoryColour(category) : null;
    const made = element("div", {
      class: `frame ${kind} ${this.found.has(node) ? "found" : ""}`, role: "treeitem", tabindex: -1, "aria-level": depth + 1,
      "aria-posinset": place, "aria-setsize": among, "aria-expanded": node.children.size ? "true" : null, "aria-label": this.wordsOf(node),
      "data-bytes": node.bytes, "data-label": node.label,
      style: {left: `${left * 100}%`, width: `${width * 100}%`, top: `${depth * ROW}px`, ...(only ? {background: fill, color: inkOn(fill)} : {})},
    });
    if (width * pixels >= WITH_BYTES) made.append(element("b", {}, formatBytes(node.bytes)));
    if (width * pixels >= LABELLED) made.append(element("span", {}, node.label));
    if (!only) made.append(element("i", {style: {background: stripes(node, this.layers)}}));
    const frame = {node, above, depth, left, element: made};
    this.rows = Math.max(this.rows, depth + 1);
    this.frames.push(frame);
    this.byElement.set(made, frame);
  }

  // What a screen reader says of a frame, and what stands under the picture.
  wordsOf(node) {
    const [category, most] = largestPart(node.parts);
    return [node.title, `${formatBytes(node.bytes)}, ${formatShare(node.bytes, this.root.bytes)}`, node.each ? `${formatBytes(node.each.bytes)} each` : null,
            node.allocations ? plural(node.allocations, "allocation") : null,
            node.label === category ? null : most === node.bytes ? category : `most of it ${category}`].filter(Boolean).join("; ");
  }

  under(event) {
    return this.byElement.get(event.target.closest("[role=treeitem]")) || null;
  }

  hover(event) {
    const frame = this.under(event);
    if (!frame) return hideTip();
    const {node} = frame, path = this.path, zoom = path[path.length - 1];
    showTip(event, element("b", {}, ...breakable(node.title)),
            element("div", {}, `${formatBytes(node.bytes)} (${formatExact(node.bytes)})`),
            element("div", {class: "quiet"}, [`${formatShare(node.bytes, this.root.bytes)} of all`, zoom === this.root || node.bytes > zoom.bytes ? null : `${formatShare(node.bytes, zoom.bytes)} of ${zoom.label}`,
              node.each ? `${formatBytes(node.each.bytes)} each` : null, node.allocations ? plural(node.allocations, "allocation") : null].filter(Boolean).join(" · ")),
            categoryRows(this.layers.map((layer) => [layer, node.parts.get(layer) || 0]), node.bytes, null), ...this.tip(node));
  }

  tell(frame) {
    this.said.textContent = frame ? this.wordsOf(frame.node) : "";
  }

  zoomTo(frame) {
    if (!frame) return;
    const keys = [];
    for (let at = frame; at && at.node !== this.root; at = this.frameOf(at.above)) keys.unshift(at.node.key);
    const same = keys.length === this.zoomed.length && keys.every((key, i) => key === this.zoomed[i]);
    this.zoom(same && keys.length ? keys.slice(0, -1) : keys); // a second click goes back
  }

  zoom(keys) {
    this.zoomed = keys;
    hideTip();
    this.draw();
    this.onZoom();
    const path = this.path;
    this.focus(this.frameOf(path[path.length - 1]));
  }

  back() {
    if (this.zoomed.length) this.zoom(this.zoomed.slice(0, -1));
  }

  frameOf(node) {
    return this.frames.find((frame) => frame.node === node && node) || null;
  }

  focus(frame) {
    if (!frame) return;
    for (const other of this.frames) if (other.node) other.element.tabIndex = -1;
    frame.element.tabIndex = 0;
    frame.element.focus({preventScroll: true});
    frame.element.scrollIntoView({block: "nearest"});
    this.tell(frame);
  }

  key(event) {
    const frame = this.under(event);
    if (!frame || event.ctrlKey || event.metaKey || event.altKey) return;
    const beside = (step) => {
      const row = this.frames.filter((other) => other.node && other.depth === frame.depth).sort((a, b) => a.left - b.left);
      return row[row.indexOf(frame) + step];
    };
    const keys = {
      ArrowUp: () => this.focus(this.frameOf(frame.above)),
      ArrowDown: () => this.focus(this.frames.find((other) => other.above === frame.node && other.node)),
      ArrowLeft: () => this.focus(beside(-1)),
      ArrowRight: () => this.focus(beside(1)),
      Home: () => this.zoom([]),
      Enter: () => this.zoomTo(frame),
      " ": () => this.zoomTo(frame),
      Escape: () => this.back(),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  showTrail(path) {
    this.trail.replaceChildren(...path.flatMap((node, i) => [
      i ? element("span", {class: "quiet", "aria-hidden": "true"}, "›") : null,
      element("button", {type: "button", "aria-current": i === path.length - 1 ? "location" : null, title: node.title,
                         onclick: () => this.zoom(this.zoomed.slice(0, i))}, node.label)]).filter(Boolean));
  }
}

function largestPart(parts) {
  return [...parts].reduce((a, b) => (b[1] > a[1] ? b : a), ["", -1]);
}

// The categories of a frame side by side, in the order of the charts.
function stripes(node, layers) {
  const stops = [];
  let at = 0;
  for (const layer of layers) {
    const bytes = node.parts.get(layer) || 0;
    if (!bytes) continue;
    const to = at + (bytes / node.bytes) * 100;
    stops.push(`${categoryColour(layer)} ${at}% ${to}%`);
    at = to;
  }
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}

// Black or white, whichever stands out more.
function inkOn(fill) {
  const part = (i) => {
    const value = parseInt(fill.slice(i, i + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  const light = 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#ffffff" : "#000000";
}
