"use strict";
// Panels as pictures, which are light and stand alone, and as tables.
(() => {
  const { methods, panels, state, inLight, seen, along, download } = report;

  // With its legend, title and background, and enough points for print.
  function picture(p, format) {
    const { data, layout } = inLight(() => report.drawing(p, true));
    const name = `fedcef-${panels[p].key}-${state.axis.key}`, rows = Math.ceil(data.filter((trace) => trace.showlegend).length / 3);
    layout.yaxis.title = { text: panels[p].title };
    Plotly.downloadImage({ data, layout }, { format, width: 900, height: 540 + 24 * rows, scale: format === "svg" ? 1 : 3, filename: name });
  }

  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const csv = (rows) => rows.map((row) => row.map((cell) => quoted(String(cell ?? ""))).join(",") + "\n").join("");

  // The points of the curves that are seen, in bytes, seconds and the panel's unit.
  function points(p) {
    const { key } = panels[p], columns = ["round", "wire_bytes", "paper_bytes", "wall_s", "network_s", "sim_s"];
    const rows = [["method", ...columns, "value", "least", "greatest"]];
    methods.filter((m, k) => seen(k) && m.curves[key]).forEach((m) => {
      const c = m.curves[key], xs = columns.map((column) => along(c, column));
      c.y.forEach((y, i) => rows.push([m.text, ...xs.map((x) => x[i]), y, c.low[i], c.high[i]]));
    });
    return csv(rows);
  }

  // A table as it stands there, what is ± in columns of its own.
  function cells(table) {
    const part = (cell, of) => (cell.querySelector(of)?.textContent || "").replace("±", "").trim();
    const plain = (cell) => { const copy = cell.cloneNode(true); copy.querySelectorAll(".spread, .seeds, .mark").forEach((c) => c.remove()); return copy.innerText || copy.textContent; };
    const spreads = [...table.tHead.rows[0].cells].map((_, j) => [...table.tBodies[0].rows].some((row) => row.cells[j].querySelector(".spread")));
    const heads = [...table.tHead.rows[0].cells].flatMap((cell, j) => { const text = [...cell.querySelectorAll("button")].map((b) => [...b.childNodes].map((n) => n.textContent).join(" ").trim())[0]; return spreads[j] ? [text, `${text} ±`] : [text]; });
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => [...row.cells].flatMap((cell, j) => {
      const text = plain(cell).trim().replace(/(?<=\d),(?=\d{3})/g, "");
      return spreads[j] ? [text, part(cell, ".spread")] : [text];
    }));
    return csv([heads.map((head) => head.replace(/\s+/g, " ")), ...rows]);
  }

  document.querySelectorAll(".save").forEach((button) => button.addEventListener("click", () => {
    const p = +button.dataset.panel, { format } = button.dataset;
    if (format === "csv") { download(`fedcef-${panels[p].key}.csv`, "text/csv", points(p)); } else { picture(p, format); }
  }));
  document.querySelectorAll(".save-table").forEach((button) => button.addEventListener("click", () => {
    download("fedcef-results.csv", "text/csv", cells(button.closest(".saved").querySelector("table")));
  }));
})();
