"use strict";
// On paper nothing can be scrolled to or unfolded: panels are light and fit, folded parts are open, tables that are wider are smaller.
(() => {
  const { changed } = report;
  const WIDTH = 1030; // of A4 on its side, in pixels of a browser; also in page.css
  const SMALLEST = 0.2;
  let undo = [];

  addEventListener("beforeprint", () => {
    if (undo.length) { return; }
    const root = document.documentElement;
    root.classList.add("light", "printing");
    undo.push(() => root.classList.remove("light", "printing"));
    changed();
    document.querySelectorAll("details:not([open]):not(.whole)").forEach((part) => {
      part.open = true;
      undo.push(() => { part.open = false; });
    });
    document.querySelectorAll(".scroll > table").forEach((table) => {
      const wide = table.scrollWidth;
      if (wide <= WIDTH) { return; }
      table.style.zoom = Math.max(SMALLEST, WIDTH / wide);
      undo.push(() => { table.style.zoom = ""; });
    });
    document.querySelectorAll(".plot .main-svg").forEach((svg) => svg.setAttribute("viewBox", `0 0 ${svg.getAttribute("width")} ${svg.getAttribute("height")}`));
  });
  addEventListener("afterprint", () => {
    undo.forEach((step) => step());
    undo = [];
    document.querySelectorAll(".plot .main-svg").forEach((svg) => svg.removeAttribute("viewBox"));
    changed();
    document.querySelectorAll(".plot.js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot));
  });
})();
