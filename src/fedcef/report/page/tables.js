"use strict";
// Tables that sort by a click on a head; texts that can be copied or saved.
(() => {
  const valueOf = (cell) => {
    if (cell.dataset.value !== undefined) { return cell.dataset.value === "" ? NaN : +cell.dataset.value; }
    return parseFloat((cell.firstChild ? cell.firstChild.textContent : "").replace(/,/g, ""));
  };

  // What has no number comes last, in either order.
  function compare(a, b, column, down) {
    if (column === 0) { return (down ? -1 : 1) * (a.dataset.method - b.dataset.method); }
    const [x, y] = [a, b].map((row) => valueOf(row.cells[column]));
    if (Number.isNaN(x) || Number.isNaN(y)) { return Number.isNaN(x) - Number.isNaN(y); }
    return (down ? -1 : 1) * (x - y);
  }

  document.querySelectorAll("table.sortable").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(a, b, column, down));
      table.tBodies[0].append(...rows);
    }));
  });

  const textBeside = (button) => button.parentElement.querySelector("pre").textContent;

  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(textBeside(button));
      button.textContent = "Copied";
    } catch { // a browser that forbids it: mark the text instead
      getSelection().selectAllChildren(button.parentElement.querySelector("pre"));
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }));

  document.querySelectorAll(".save-text").forEach((button) => button.addEventListener("click", () => {
    report.download(button.dataset.name, "text/plain", textBeside(button));
  }));
})();
