"use strict";
// Tables that sort: a column is {name, text(row), value(row) for sorting, number, cell(row)}.

class SortedTable {
  constructor(box, columns, options) {
    Object.assign(this, {box, columns, options: options || {}, sorted: null, descending: false, rows: []});
  }

  show(rows) {
    this.rows = rows;
    this.render();
  }

  sortBy(index) {
    const column = this.columns[index];
    if (this.options.natural && index === 0) this.sorted = null; // the tree's own order
    else if (this.sorted === index) this.descending = !this.descending;
    else {
      this.sorted = index;
      this.descending = !!column.number;
    }
    if (this.sorted === null) this.descending = false;
    this.render();
    this.box.querySelector(`thead th:nth-child(${index + 1}) button`).focus();
  }

  ordered() {
    if (this.sorted === null) return this.rows;
    const {value} = this.columns[this.sorted], sign = this.descending ? -1 : 1;
    return this.rows.slice().sort((a, b) => {
      const left = value(a), right = value(b);
      if (left === right) return 0;
      if (left === null || left === undefined) return 1; // what is not known comes last either way
      if (right === null || right === undefined) return -1;
      return (left < right ? -1 : 1) * sign;
    });
  }

  render() {
    const head = element("tr", {}, ...this.columns.map((column, i) => {
      const natural = this.options.natural && i === 0 && this.sorted === null;
      const order = natural ? "ascending" : this.sorted !== i ? "none" : this.descending ? "descending" : "ascending";
      return element("th", {scope: "col", class: column.number ? "number" : null, "aria-sort": order},
                     this.options.fixed || !column.value ? column.name : element("button", {type: "button", title: column.help, onclick: () => this.sortBy(i)}, column.name,
                             element("span", {class: "arrow", "aria-hidden": "true"},
                                     order === "none" ? "" : this.descending ? " ▾" : " ▴")));
    }));
    const most = this.all ? this.options.atMost || Infinity : this.options.most || Infinity;
    const rows = this.ordered();
    const body = rows.slice(0, most).map((row) =>
      element("tr", {}, ...this.columns.map((column) =>
        element("td", {class: column.number ? "number" : null}, column.cell ? column.cell(row, this.sorted === null) : column.value(row)))));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
    if (this.options.foot) table.append(element("tfoot", {}, this.options.foot()));
    this.box.replaceChildren(table);
    if (rows.length > most && this.all) this.box.append(element("p", {class: "quiet"}, `The first ${most.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}: find fewer, or sort by another column`));
    else if (rows.length > most)
      this.box.append(element("button", {type: "button", class: "more", onclick: () => {
        this.all = true;
        this.render();
      }}, this.options.atMost < rows.length ? `Show ${this.options.atMost.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")}` : `Show all ${rows.length.toLocaleString("en-US")}`));
  }
}

// A plain table: headings, then rows of cells; numbers says which columns are right-aligned.
function plainTable(headings, rows, numbers) {
  return element("table", {}, element("thead", {}, element("tr", {}, ...headings.map((text, i) =>
    element("th", {scope: "col", class: numbers.includes(i) ? "number" : null}, text)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) =>
      element("td", {class: numbers.includes(i) ? "number" : null}, cell))))));
}

// A horizontal bar of parts [{bytes, fill, name}], of which whole bytes fill the width.
function stackedBar(parts, whole) {
  return element("div", {class: "bar", role: "img", "aria-label": parts.map((p) => `${p.name} ${formatBytes(p.bytes)}`).join(", ")},
                 ...parts.filter((part) => part.bytes > 0).map((part) =>
                   element("span", {style: {width: `${(part.bytes / whole) * 100}%`, background: part.fill},
                                    title: `${part.name}: ${formatBytes(part.bytes)} (${formatExact(part.bytes)})`})));
}
