"use strict";
// What every method pays until it reaches a target.
(() => {
  const { methods, axes, targets, digits, bytes, seconds, along, byId, onChange } = report;
  const times = ["network_s", "sim_s"].filter((key) => axes.some((axis) => axis.key === key));
  const COLUMNS = [["round", digits], ["wire_bytes", bytes], ["paper_bytes", bytes], ["wall_s", seconds], ...times.map((key) => [key, seconds])];

  // The first evaluated round at or beyond the target; -1 where there is none.
  const reached = (c, target, up) => (c ? c.y.findIndex((y) => y !== null && (up ? y >= target : y <= target)) : -1);

  function fill(g) {
    const { key, up } = targets[g], target = byId(`target-${g}`).valueAsNumber;
    const rows = [...byId(`prices-${g}`).tBodies[0].rows];
    const prices = rows.map((row) => {
      const c = methods[row.dataset.method].curves[key], i = reached(c, target, up);
      return COLUMNS.map(([column]) => (i < 0 ? null : along(c, column)[i]));
    });
    rows.forEach((row, r) => COLUMNS.forEach(([, format], j) => {
      const cell = row.cells[j + 1], price = prices[r][j];
      const least = Math.min(...prices.filter((_, k) => !rows[k].classList.contains("off") && !rows[k].hidden).map((p) => (p[j] === null ? Infinity : p[j])));
      cell.textContent = price !== null ? format(price) : j === 0 && Number.isFinite(target) ? "not reached" : "–";
      cell.dataset.value = price === null ? "" : price;
      cell.className = price === null ? "none" : rows.length > 1 && price === least ? "best" : "";
    }));
  }

  targets.forEach((target, g) => {
    byId(`target-${g}`).value = target.start;
    byId(`target-${g}`).addEventListener("input", () => fill(g));
    onChange(() => fill(g));
    fill(g);
  });
})();
