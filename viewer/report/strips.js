"use strict";
// The same stretch of time on every rank, one small chart under the other, all on one scale.

const STRIP = 44, STRIPS_FIRST = 16;

class RankStrips {
  constructor(box, layers, groups, onRank) {
    Object.assign(this, {box, layers, groups, onRank, most: STRIPS_FIRST});
  }

  // The rows at once, so that nothing below them moves later under the pointer; what is in them soon: a drag changes the view
  // many times.
  show(ranks, current, from, to) {
    Object.assign(this, {ranks, current, from, to});
    this.place();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), 120);
  }

  // Of many ranks, how many a drawn one stands for.
  alike(view) {
    const group = this.groups.find((one) => one.representative === view.rank);
    return group ? element("span", {class: "quiet detail", title: `ranks ${group.ranks}`}, group.count > 1 ? `${group.count.toLocaleString("en-US")} alike` : "alone") : "";
  }

  place() {
    const known = this.ranks.filter((view) => view.recorded);
    this.box.hidden = known.length < 2;
    const wanted = this.box.hidden ? [] : known.slice(0, this.most);
    if (this.rows?.length !== wanted.length || this.rows.some((one, i) => one.view !== wanted[i])) {
      this.rows = wanted.map((view) => {
        const canvas = element("canvas", {role: "img", "aria-label": `Allocated bytes of rank ${view.rank} over the time in view`});
        const peak = element("span", {class: "number"}), alike = this.alike(view);
        const button = element("button", {type: "button", onclick: () => this.onRank(view.rank)}, `${view.rank}`);
        return {view, canvas, peak, alike, button, row: element("div", {class: "strip"}, button, canvas, peak)};
      });
      this.box.replaceChildren(...this.rows.map((one) => one.row));
      if (wanted.length && known.length > this.most)
        this.box.append(element("button", {type: "button", class: "more", onclick: () => {
          this.most = Infinity;
          this.place();
          this.draw();
        }}, `Show all ${known.length} ranks`));
    }
    for (const one of this.rows) one.button.setAttribute("aria-pressed", one.view === this.current);
  }

  draw() {
    if (!this.rows.length) return;
    const width = this.rows[0].canvas.clientWidth;
    for (const one of this.rows) {
      one.drawn = one.view.memory.drawn(this.from, this.to, width);
      one.top = highestOf(one.drawn.sums[this.layers.length - 1]);
      one.peak.replaceChildren(bytesCell(one.top), one.alike);
    }
    const top = Math.max(1, ...this.rows.map((one) => one.top));
    for (const one of this.rows) this.drawStrip(one, width, top);
  }

  drawStrip({canvas, drawn}, width, top) {
    const ratio = devicePixelRatio;
    canvas.width = width * ratio;
    canvas.height = STRIP * ratio;
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    this.paint(ctx, drawn, width, top);
  }

  // Each with its rank and its highest in view, for a picture of them all.
  asSvg() {
    const width = this.rows[0].canvas.clientWidth, most = Math.max(1, ...this.rows.map((one) => one.top));
    return drawnAsSvg(width + 160, this.rows.length * (STRIP + 4), "r", (context) => this.rows.forEach((one, i) => {
      context.save();
      context.translate(0, i * (STRIP + 4));
      Object.assign(context, {font: cssFont(12), fillStyle: colour("--ink")});
      context.fillText(`rank ${one.view.rank}`, 4, STRIP / 2);
      context.fillText(formatBytes(one.top), width + 80, STRIP / 2);
      context.translate(70, 0);
      this.paint(context, one.drawn, width, most);
      context.restore();
    }));
  }

  paint(ctx, drawn, width, top) {
    const {times, sums} = drawn;
    const x = (at) => ((at - this.from) / (this.to - this.from)) * width, y = (bytes) => STRIP - (bytes / top) * (STRIP - 2);
    for (let n = this.layers.length - 1; n >= 0 && times.length; n--) { // the whole first, what lies below over it
      ctx.fillStyle = categoryColour(this.layers[n]);
      ctx.beginPath();
      ctx.moveTo(x(times[0]), STRIP);
      for (let i = 0; i < times.length; i++) {
        if (i) ctx.lineTo(x(times[i]), y(sums[n][i - 1]));
        ctx.lineTo(x(times[i]), y(sums[n][i]));
      }
      ctx.lineTo(x(times[times.length - 1]), STRIP);
      ctx.fill();
    }
  }
}
