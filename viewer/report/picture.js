"use strict";
// Each picture as a file: SVG, of which PNG is made. Canvases are drawn again into SVG, the rest is taken from what is on the screen.

const REAL_CONTEXT = HTMLCanvasElement.prototype.getContext, REAL_PATH = window.Path2D;
let saving = Promise.resolve(); // one picture after the other

// A chart of the library, drawn once more where its canvas and its paths are recorded. It draws in the microtask after it is made.
async function plotAsSvg(options, data, prefix) {
  const measure = document.createElement("canvas").getContext("2d"), contexts = [];
  const box = document.createElement("div");
  HTMLCanvasElement.prototype.getContext = function () {
    contexts.push(Object.assign(new SvgContext(this, measure), {prefix}));
    return contexts[contexts.length - 1];
  };
  window.Path2D = RecordedPath;
  try {
    const plot = new uPlot(options, data, box);
    for (let i = 0; i < 4; i++) await null;
    plot.destroy();
  } finally {
    HTMLCanvasElement.prototype.getContext = REAL_CONTEXT;
    window.Path2D = REAL_PATH;
  }
  const ratio = devicePixelRatio;
  return {inside: `<g transform="scale(${1 / ratio})">${contexts[0].parts.join("")}</g>`, width: options.width, height: options.height};
}

// What is on the screen of an element: backgrounds, borders of pictures, and text, line by line.
function elementAsSvg(root, prefix) {
  const parts = [], origin = root.getBoundingClientRect();
  let clips = 0;
  const box = (rect) => `x="${short(rect.left - origin.left)}" y="${short(rect.top - origin.top)}" width="${short(rect.width)}" height="${short(rect.height)}"`;
  const visit = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return parts.push(...textAsSvg(node, origin));
    if (node.nodeType !== Node.ELEMENT_NODE) return;
    const style = getComputedStyle(node), rect = node.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || node.dataset.save !== undefined || !rect.width || !rect.height) return;
    if (node instanceof SVGSVGElement) {
      parts.push(`<g transform="translate(${short(rect.left - origin.left)} ${short(rect.top - origin.top)})">${new XMLSerializer().serializeToString(node)}</g>`);
      return;
    }
    const shade = style.backgroundColor;
    if (shade !== "rgba(0, 0, 0, 0)" && shade !== "transparent") parts.push(`<rect ${box(rect)} fill="${escaped(shade)}" opacity="${style.opacity}"/>`);
    parts.push(...stripesAsSvg(style.backgroundImage, rect, origin, box));
    const clipped = style.overflowX === "hidden";
    if (clipped) parts.push(`<clipPath id="${prefix}${clips}"><rect ${box(rect)}/></clipPath><g clip-path="url(#${prefix}${clips++})">`);
    node.childNodes.forEach(visit);
    if (clipped) parts.push("</g>");
  };
  visit(root);
  return {inside: parts.join(""), width: Math.ceil(origin.width), height: Math.ceil(origin.height)};
}

// Each line of a text; one that the screen cuts ends there.
function textAsSvg(node, origin) {
  const text = node.textContent, parts = [], range = document.createRange();
  if (!text.trim()) return parts;
  const style = getComputedStyle(node.parentElement), size = parseFloat(style.fontSize);
  let line = "", top = null, first = null, bottom = 0;
  const flush = () => {
    if (line.trim()) parts.push(`<text x="${short(first - origin.left)}" y="${short(bottom - origin.top - size * 0.28)}" font-size="${short(size)}" font-weight="${style.fontWeight}" font-family="${escaped(style.fontFamily.replaceAll("\"", "'"))}" fill="${escaped(style.color)}" xml:space="preserve">${escaped(line)}</text>`);
    line = "";
    first = null;
  };
  for (let i = 0; i < text.length; i++) {
    range.setStart(node, i);
    range.setEnd(node, i + 1);
    const [rect] = range.getClientRects();
    if (!rect || !rect.width) continue;
    if (top === null || Math.abs(rect.top - top) > 3) flush();
    if (first === null) [first, top, bottom] = [rect.left, rect.top, rect.bottom];
    line += text[i];
  }
  flush();
  return parts;
}

// "linear-gradient(90deg, rgb(1, 2, 3) 0%, rgb(1, 2, 3) 40%, …)": the categories of a frame; other patterns are hatched.
function stripesAsSvg(image, rect, origin, box) {
  if (image.startsWith("repeating-linear-gradient")) {
    const lines = [], color = colour("--paper");
    for (let x = rect.left - rect.height; x < rect.right; x += 7) {
      const [from, to] = [Math.max(x, rect.left), Math.min(x + rect.height, rect.right)];
      if (to > from) lines.push(`M${short(from - origin.left)} ${short(rect.bottom - (from - x) - origin.top)}L${short(to - origin.left)} ${short(rect.bottom - (to - x) - origin.top)}`);
    }
    return [`<path d="${lines.join("")}" stroke="${color}" stroke-width="2" stroke-opacity="0.7"/>`];
  }
  if (!image.startsWith("linear-gradient(90deg")) return [];
  return [...image.matchAll(/(rgba?\([^)]*\)) ([\d.]+)%, \1 ([\d.]+)%|(rgba?\([^)]*\)) ([\d.]+)% ([\d.]+)%/g)].map(([, a, from, to, b, from2, to2]) => {
    const [fill, left, right] = a ? [a, from, to] : [b, from2, to2];
    return `<rect ${box({left: rect.left + (rect.width * left) / 100, top: rect.top, width: (rect.width * (right - left)) / 100, height: rect.height})} fill="${fill}"/>`;
  });
}

// Parts under each other, with what they show as the first line.
function pictureOf(title, parts) {
  const width = Math.max(...parts.map((part) => part.width), 320) + 16, head = 30;
  let at = head;
  const body = parts.map((part) => {
    const moved = `<g transform="translate(8 ${at})">${part.inside}</g>`;
    at += part.height;
    return moved;
  });
  return {width, height: at + 8, text: `<svg xmlns="${SVG}" width="${width}" height="${at + 8}" viewBox="0 0 ${width} ${at + 8}"><rect width="100%" height="100%" fill="${colour("--paper")}"/><text x="8" y="20" font-size="13" font-family="system-ui, sans-serif" fill="${colour("--ink")}">${escaped(title)}</text>${body.join("")}</svg>`};
}

function download(blob, name) {
  const link = element("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function asPng({text, width, height}) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [width * 2, height * 2];
      canvas.getContext("2d").drawImage(image, 0, 0, width * 2, height * 2);
      canvas.toBlob(done, "image/png");
    };
    image.onerror = () => failed(new Error("the browser can’t draw the picture"));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  });
}

// Two buttons behind a heading, or in a toolbar. make() gives {title, parts}, soon.
function offerPicture(place, name, label, make) {
  const save = async (kind) => {
    const {title, parts} = await make(), picture = pictureOf(title, parts);
    download(kind === "svg" ? new Blob([picture.text], {type: "image/svg+xml"}) : await asPng(picture), `${name}.${kind}`);
  };
  place.append(element("span", {class: "save", "data-save": ""}, ...["PNG", "SVG"].map((kind) =>
    element("button", {type: "button", "aria-label": `Save ${label} as ${kind}`, title: `Save ${label} as ${kind}`, onclick: () => (saving = saving.then(() => save(kind.toLowerCase())))}, kind))));
}

// All pictures of the page.
function offerPictures(app) {
  const at = (id) => document.getElementById(id), run = document.title.replace(/ – .*/, "");
  const where = () => `${run}, rank ${app.view.rank}, ${at("view").textContent.replace(/^Rank \d+ · /, "")}`;
  const file = run.replace(/[^\w.-]+/g, "-"), offer = (id, name, make) => offerPicture(at(id), `${file}-${name}`, `“${at(id).textContent}”`, make);
  offerPicture(document.querySelector(".controls"), `${file}-answer`, "the answer", async () => ({title: run, parts: [elementAsSvg(at("answer"), "a")]}));
  offer("steps-title", "steps", async () => ({title: `${run}: peak of every step, rank ${app.view.rank}`, parts: [await plotAsSvg(app.steps.bars.options, app.steps.bars.data, "s")]}));
  offer("timeline-title", "timeline", async () => ({title: where(), parts: [elementAsSvg(at("legend"), "g"), await plotAsSvg(app.chart.options, app.chart.data, "t"), drawnAsSvg(app.chart.width, app.lanes.height, "l", (context) => app.lanes.paint(context))]}));
  offer("holders-title", "holders", async () => ({title: app.holders.lead.textContent, parts: [elementAsSvg(app.holders.icicle.box, "h")]}));
  offer("segments-title", "segments", async () => ({title: app.segments.lead.textContent, parts: [elementAsSvg(app.segments.picture, "m")]}));
  if (app.strips.rows.length) offer("ranks-title", "ranks-over-time", async () => ({title: at("strips-lead").textContent, parts: [app.strips.asSvg()]}));
  offer("fleet-title", "ranks", async () => ({title: at("fleet-lead").textContent, parts: [app.heat.asSvg()]}));
  offer("device-title", "device", async () => ({title: `${run}: ${at("device-lead").textContent}`, parts: [await plotAsSvg(app.device.bars.options, app.device.bars.data, "d")]}));
}
