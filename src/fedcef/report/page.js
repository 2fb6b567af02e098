"use strict";
(() => {
  const { methods, axes, panels } = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const byId = (id) => document.getElementById(id);
  const state = { axis: axes[0], logX: axes[0].log, logY: panels.map((p) => p.log), shown: methods.map(() => true) };

  const SIZE = 9; // of a marker
  const UNITS = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
  const unitOf = (typical) => UNITS.find(([size]) => typical >= size) || [1, "B"];
  const digits = (v) => (v === null ? "–" : v === 0 ? "0" : Math.abs(v) >= 1e-3 && Math.abs(v) < 1e6 ? String(+v.toPrecision(4)) : v.toExponential(2));
  const bytes = (v) => { const [size, name] = unitOf(v); return `${digits(v / size)} ${name}`; };
  const color = (m) => (dark.matches ? m.dark : m.color);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const faint = (hex) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))}, 0.18)`;

  const look = (m, sizes) => ({ name: m.name, mode: "lines+markers", line: { color: color(m), width: 2.2, dash: m.dash },
    marker: { symbol: m.symbol, size: sizes, color: color(m), opacity: 1,
      line: { color: css("--paper"), width: sizes.map((size) => (size ? 1 : 0)) } } });

  // Round 0 has no place on a logarithmic axis.
  const keep = (xs) => xs.map((x, i) => i).filter((i) => xs[i] !== null && (!state.logX || xs[i] > 0));

  // Low, high and unit of the x axis over the curves that are shown, one for all panels of a group.
  function extent(p) {
    let low = Infinity, high = 0;
    const keys = panels.filter((other) => other.group === panels[p].group).map((other) => other.key);
    methods.forEach((m, k) => keys.filter((key) => m.curves[key]).forEach((key) => m.curves[key][state.axis.key].forEach((x) => {
      if (state.shown[k] && x > 0) { low = Math.min(low, x); high = Math.max(high, x); }
    })));
    if (high === 0) { low = high = 1; }
    const [size, unit] = state.axis.bytes ? unitOf(state.logX ? Math.sqrt(low * high) : high) : [1, state.axis.unit];
    return { low: low / size, high: high / size, size, unit };
  }

  // Markers at about equal steps along the axis; phase keeps the markers of different curves apart.
  function markers(xs, reach, phase) {
    const place = (x) => (state.logX ? Math.log(x / reach.low) / Math.log(reach.high / reach.low || 2) : x / reach.high);
    let next = place(xs[0]) + 0.03 + 0.09 * phase;
    return xs.map((x) => { if (place(x) < next) { return 0; } next = place(x) + 0.1; return SIZE; });
  }

  function hover(m, panel, c, i) {
    const range = c.high[i] > c.low[i] ? ` (${digits(c.low[i])} to ${digits(c.high[i])})` : "";
    return `<b>${m.name}</b><br>round ${digits(c.round[i])}: ${digits(c.y[i])}${panel.unit ? " " + panel.unit : ""}${range}<br>` +
      `wire ${bytes(c.wire_bytes[i])} · paper ${bytes(c.paper_bytes[i])} · ${digits(c.wall_s[i])} s`;
  }

  // A run that diverged must not flatten the others: with one, the axis is fixed by the rest.
  function limits(panel, log) {
    if (!panel.fixed || (log && panel.span[0] <= 0)) { return null; }
    const [low, high] = panel.span;
    if (log) { const pad = 0.05 * Math.log10(high / low) || 0.05; return [Math.log10(low) - pad, Math.log10(high) + pad]; }
    const pad = 0.05 * (high - low) || 0.05;
    return [low - pad, high + pad];
  }

  function traces(p, reach) {
    const panel = panels[p], all = [];
    const range = limits(panel, state.logY[p]);
    methods.forEach((m, k) => {
      const c = m.curves[panel.key];
      if (!c || !state.shown[k]) { return; }
      const at = keep(c[state.axis.key]);
      if (!at.length) { return; }
      const x = at.map((i) => c[state.axis.key][i] / reach.size), pick = (column) => at.map((i) => column[i]);
      if (at.some((i) => c.high[i] > c.low[i])) {
        all.push({ x: [...x, ...[...x].reverse()], y: [...pick(c.low), ...pick(c.high).reverse()], fill: "toself", mode: "lines",
          line: { width: 0 }, fillcolor: faint(color(m)), hoverinfo: "skip", showlegend: false });
      }
      const sizes = at.length > 12 ? markers(x, reach, k / methods.length) : x.map(() => SIZE);
      all.push({ x, y: pick(c.y), showlegend: false, ...look(m, sizes),
        text: at.map((i) => hover(m, panel, c, i)), hovertemplate: "%{text}<extra></extra>" });
      if (c.diverged) {
        const bound = (v) => { const w = state.logY[p] ? Math.log10(v) : v; return range ? Math.min(Math.max(w, range[0]), range[1]) : w; };
        const ys = pick(c.y).map(bound), last = ys.length - 1;
        // where the curve ends, or leaves the panel for good
        let end = last;
        while (range && range.includes(ys[last]) && end > 0 && ys[end - 1] === ys[last]) { end -= 1; }
        all.push({ x: [x[end]], y: [state.logY[p] ? 10 ** ys[end] : ys[end]], mode: "markers", cliponaxis: false, showlegend: false,
          marker: { symbol: "x-thin", size: 10, line: { color: color(m), width: 3 } }, hoverinfo: "skip" });
      }
    });
    return all;
  }

  function layout(p, reach) {
    const grid = { gridcolor: css("--line"), linecolor: css("--soft"), zeroline: false, ticks: "outside", ticklen: 4,
      tickcolor: css("--soft"), automargin: true };
    const range = limits(panels[p], state.logY[p]), log = Math.log10;
    const pad = 0.03 * (log(reach.high / reach.low) || 1);
    // Plain numbers at the powers of ten, and at 2 and 5 where those are few.
    const ticks = (low, high) => ({ dtick: high / low < 120 ? "D2" : high / low < 1e7 ? 1 : 2,
      ...(high / low < 1e5 ? { tickformat: "~g" } : { exponentformat: "power" }) });
    return {
      margin: { l: 44, r: 12, t: 10, b: 46 }, showlegend: false, hovermode: "closest", hoverdistance: 30, dragmode: "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: css("--soft") },
      hoverlabel: { bgcolor: css("--raised"), bordercolor: css("--line"), align: "left", font: { family: getComputedStyle(document.body).fontFamily, color: css("--ink") } },
      xaxis: { ...grid, type: state.logX ? "log" : "linear", title: { text: state.axis.title + (reach.unit ? ` (${reach.unit})` : ""), standoff: 8, font: { size: 13 } },
        range: state.logX ? [log(reach.low) - pad, log(reach.high) + pad] : [-0.02 * reach.high, 1.03 * reach.high],
        ...(state.logX ? ticks(reach.low, reach.high) : {}) },
      yaxis: { ...grid, type: state.logY[p] ? "log" : "linear", ...(range ? { range } : {}),
        ...(state.logY[p] ? ticks(...panels[p].span) : {}) },
    };
  }

  function draw() {
    panels.forEach((_, p) => {
      const reach = extent(p);
      Plotly.react(byId(`plot-${p}`), traces(p, reach), layout(p, reach), { responsive: true, displayModeBar: false, doubleClick: "reset" });
    });
  }

  // A picture that stands alone: with its legend, title and background.
  function save(p) {
    const reach = extent(p), ink = { color: css("--ink") };
    const named = methods.filter((m, k) => state.shown[k]).map((m) => ({ x: [null], y: [null], ...look(m, [SIZE]) }));
    const data = [...traces(p, reach), ...named];
    const view = { ...layout(p, reach), paper_bgcolor: css("--paper"), showlegend: true,
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", font: ink }, margin: { l: 70, r: 20, t: 20, b: 60 } };
    view.yaxis.title = { text: panels[p].title };
    Plotly.downloadImage({ data, layout: view }, { format: "png", width: 900, height: 620, scale: 3, filename: `fedcef-${panels[p].key}` });
  }

  function show(shown) {
    state.shown = shown;
    document.querySelectorAll("#legend button").forEach((b, k) => b.setAttribute("aria-pressed", String(shown[k])));
    document.querySelectorAll(".results tbody tr").forEach((row) => row.classList.toggle("off", !shown[row.dataset.method]));
    draw();
  }

  document.querySelectorAll("#axes input").forEach((input, a) => input.addEventListener("change", () => {
    state.axis = axes[a];
    state.logX = byId("log-x").checked = axes[a].log;
    draw();
  }));
  byId("log-x").checked = state.logX;
  byId("log-x").addEventListener("change", (event) => { state.logX = state.axis.log = event.target.checked; draw(); });
  document.querySelectorAll("#legend button").forEach((button, k) => {
    button.addEventListener("click", () => show(state.shown.map((s, j) => (j === k ? !s : s))));
    button.addEventListener("dblclick", () => {
      const alone = state.shown.every((s, j) => s === (j === k));
      show(state.shown.map((_, j) => alone || j === k));
    });
  });
  panels.forEach((_, p) => {
    const box = byId(`log-y-${p}`);
    if (box) { box.checked = state.logY[p]; box.addEventListener("change", () => { state.logY[p] = box.checked; draw(); }); }
    byId(`save-${p}`).addEventListener("click", () => save(p));
  });
  dark.addEventListener("change", draw);
  draw();
})();
