"use strict";
// Colours, and whether the page is light or dark.

const OWN_WORDS = ["#7a5fb0", "#a793d1", "#5b4a8a", "#c7bbe4"]; // categories that a user's tags name

const CATEGORY_COLOUR = new Map(); // of the ledger's table `category`; what is missing has the ink's

// The run's categories from the bottom of the stack up, the user's own on top of the ledger's; unattributed bytes are above
// all, where nobody misses them.
function layersOf(run) {
  const layers = run.categories.map(({name}) => name).filter((name) => name !== "unattributed");
  for (const {name, colour} of run.categories) if (colour) CATEGORY_COLOUR.set(name, colour);
  const present = new Set(run.peak_category.map((row) => row.category));
  for (const index of run.timeline) for (const [, category] of index.owners) present.add(category);
  const own = [...present].filter((name) => !CATEGORY_COLOUR.has(name) && name !== "unattributed").sort();
  own.forEach((name, i) => CATEGORY_COLOUR.set(name, OWN_WORDS[i % OWN_WORDS.length]));
  return [...layers, ...own, "unattributed"].filter((name) => present.has(name));
}

function categoryColour(category) {
  return CATEGORY_COLOUR.get(category) || colour("--ink");
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const OPERATION_CATEGORY = {AllGather: "all_gather", ReduceScatter: "reduce_scatter"};
function operationColour(operation) {
  return OPERATION_CATEGORY[operation] ? categoryColour(OPERATION_CATEGORY[operation]) : colour("--collective");
}

// Phases have tones, not hues: hues are for categories.
function phaseColour(kind) {
  const tones = {forward: "--tone-forward", backward: "--tone-backward", recompute: "--tone-backward",
                 optimizer_step: "--tone-optimizer"};
  return colour(tones[kind] || "--tone-other");
}

// The button turns the other one on; the choice is kept where the browser lets the page keep something.
function startLook(changed) {
  const button = document.getElementById("look");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let look = "auto";
  try {
    look = localStorage.getItem("shardledger-look") || "auto";
  } catch {
    // A page in a frame, or opened from a file, may keep nothing.
  }
  const apply = () => {
    if (look === "auto") delete document.documentElement.dataset.look;
    else document.documentElement.dataset.look = look;
    const dark = look === "dark" || (look === "auto" && system.matches);
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
  };
  button.addEventListener("click", () => {
    const dark = look === "dark" || (look === "auto" && system.matches);
    look = dark ? "light" : "dark";
    try {
      localStorage.setItem("shardledger-look", look);
    } catch {
      // As above.
    }
    apply();
    changed();
  });
  system.addEventListener("change", () => {
    apply();
    changed();
  });
  apply();
}

// An element with attributes and children; strings become text, never markup.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {}))
    if (key === "style") Object.assign(made.style, value);
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function swatch(fill) {
  return element("span", {class: "swatch", style: {background: fill}, "aria-hidden": "true"});
}

// A name with its colour before it.
function named(fill, name) {
  return element("span", {class: "named"}, swatch(fill), element("span", {}, ...breakable(name)));
}

// Bytes for show, exact on hover and for programs.
function bytesCell(bytes) {
  return element("span", {title: formatExact(bytes), "data-bytes": bytes}, formatBytes(bytes));
}

// A name that may wrap after its dots and underscores, and nowhere else if it can be helped.
function breakable(name) {
  return name.split(/(?<=[._])/).flatMap((part) => [part, document.createElement("wbr")]);
}
