"use strict";
// The panels of curves and their controls.
(() => {
  const { methods, axes, panels, state, byteUnit, timeUnit, digits, css, seen, along, byId, color, changed, onChange } = report;
  const SIZE = 9; // of a marker
  const MANY = 12; // curves beyond which a panel is drawn only when it comes into view
  const PAPER = { width: 490, height: 290 }; // of a printed panel: two side by side on A4
  const printing = () => document.documentElement.classList.contains("printing");
  const CONFIG = { responsive: true, displayModeBar: false, doubleClick: "reset" };
  const faint = (hex) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16))}, 0.18)`;

  const look = (m, mode) => ({ mode, line: { color: color(m), width: 2.2, dash: m.dash }, hoverinfo: "skip", showlegend: false,
    marker: { symbol: m.symbol, size: SIZE, color: color(m), opacity: 1, line: { color: css("--paper"), width: 1 } } });

  // Round 0 has no place on a logarithmic axis.
  const keep = (xs) => xs.map((x, i) => i).filter((i) => xs[i] !== null && (!state.logX || xs[i] > 0));

  // Low, high and unit of the x axis over the curves that are seen, one for all panels of a group.
  function extent(p) {
    let low = Infinity, high = 0;
    const keys = panels.filter((other) => other.group === panels[p].group).map((other) => other.key);
    methods.forEach((m, k) => keys.filter((key) => seen(k) && m.curves[key]).forEach((key) => along(m.curves[key], state.axis.key).forEach((x) => {
      if (x > 0) { low = Math.min(low, x); high = Math.max(high, x); }
    })));
    if (high === 0) { low = high = 1; }
    const key = state.axis.key;
    const [size, unit] = key.endsWith("bytes") ? byteUnit(state.logX ? Math.sqrt(low * high) : high) : key === "round" ? [1, ""] : timeUnit(high);
    return { low: low / size, high: high / size, size, unit };
  }

  // Which points carry markers: at about equal steps along the axis; phase keeps those of different curves apart.
  function markers(xs, reach, phase) {
    const place = (x) => (state.logX ? Math.log(x / reach.low) / Math.log(reach.high / reach.low || 2) : x / reach.high);
    let next = place(xs[0]) + 0.03 + 0.09 * phase;
    return xs.map((_, i) => i).filter((i) => { if (place(xs[i]) < next) { return false; } next = place(xs[i]) + 0.1; return true; });
  }

  // A run that diverged must not flatten the others: with one, the axis is fixed by the rest.
  function limits(panel, log) {
    if (!panel.fixed || (log && panel.span[0] <= 0)) { return null; }
    const [low, high] = panel.span;
    if (log) { const pad = 0.05 * Math.log10(high / low) || 0.05; return [Math.log10(low) - pad, Math.log10(high) + pad]; }
    const pad = 0.05 * (high - low) || 0.05;
    return [low - pad, high + pad];
  }

  // Where a curve that diverged ends, or leaves the panel for good.
  function cross(m, p, x, y, range) {
    const bound = (v) => { const w = state.logY[p] ? Math.log10(v) : v; return range ? Math.min(Math.max(w, range[0]), range[1]) : w; };
    const ys = y.map(bound), last = ys.length - 1;
    let end = last;
    while (range && range.includes(ys[last]) && end > 0 && ys[end - 1] === ys[last]) { end -= 1; }
    return { x: [x[end]], y: [state.logY[p] ? 10 ** ys[end] : ys[end]], mode: "markers", cliponaxis: false, showlegend: false,
      marker: { symbol: "x-thin", size: 10, line: { color: color(m), width: 3 } }, hoverinfo: "skip" };
  }

  function traces(p, reach) {
    const panel = panels[p], all = [], range = limits(panel, state.logY[p]);
    methods.forEach((m, k) => {
      const c = m.curves[panel.key];
      if (!c || !seen(k)) { return; }
      const xs = along(c, state.axis.key), at = keep(xs);
      if (!at.length) { return; }
      const x = at.map((i) => xs[i] / reach.size), pick = (column) => at.map((i) => column[i]);
      if (c.low !== c.y) {
        all.push({ x: [...x, ...[...x].reverse()], y: [...pick(c.low), ...pick(c.high).reverse()], fill: "toself", mode: "lines",
          line: { width: 0 }, fillcolor: faint(color(m)), hoverinfo: "skip", showlegend: false });
      }
      const y = pick(c.y), marked = at.length > 12 ? markers(x, reach, k / methods.length) : x.map((_, i) => i);
      // a trace of their own: a marker of size zero would still be an element for every point
      all.push({ ...look(m, "lines"), name: m.name, x, y }, { ...look(m, "markers"), x: marked.map((i) => x[i]), y: marked.map((i) => y[i]) });
      if (c.diverged) { all.push(cross(m, p, x, y, range)); }
    });
    return all;
  }

  function layout(p, reach) {
    const grid = { gridcolor: css("--line"), linecolor: css("--soft"), zeroline: false, ticks: "outside", ticklen: 4,
      tickcolor: css("--soft"), automargin: true };
    const range = limits(panels[p], state.logY[p]), log = Math.log10, family = getComputedStyle(document.body).fontFamily;
    const pad = 0.03 * (log(reach.high / reach.low) || 1);
    // Plain numbers at the powers of ten, and at 2 and 5 where those are few.
    const ticks = (low, high) => ({ dtick: high / low < 120 ? "D2" : high / low < 1e7 ? 1 : 2,
      ...(high / low < 1e5 ? { tickformat: "~g" } : { exponentformat: "power" }) });
    return {
      margin: { l: 44, r: 12, t: 10, b: 46 }, showlegend: false, hovermode: false, dragmode: "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family, size: 13, color: css("--soft") },
      xaxis: { ...grid, type: state.logX ? "log" : "linear", title: { text: state.axis.title + (reach.unit ? ` (${reach.unit})` : ""), standoff: 8, font: { size: 13 } },
        range: state.logX ? [log(reach.low) - pad, log(reach.high) + pad] : [-0.02 * reach.high, 1.03 * reach.high],
        ...(state.logX ? ticks(reach.low, reach.high) : {}) },
      yaxis: { ...grid, type: state.logY[p] ? "log" : "linear", ...(range ? { range } : {}),
        ...(state.logY[p] ? ticks(...panels[p].span) : {}) },
    };
  }

  // A panel's traces and layout; one that stands alone has its legend and background.
  report.drawing = (p, alone) => {
    const reach = extent(p), data = traces(p, reach), view = layout(p, reach);
    if (!alone) { return { reach, data, layout: view }; }
    const named = methods.filter((m, k) => seen(k) && m.curves[panels[p].key]).map((m) => ({ ...look(m, "lines+markers"), name: m.name, x: [null], y: [null], showlegend: true }));
    const whole = { paper_bgcolor: css("--paper"), showlegend: true, margin: { l: 70, r: 20, t: 20, b: 60 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", font: { color: css("--ink") } } };
    return { reach, data: [...data, ...named], layout: { ...view, ...whole } };
  };

  // What a reader who cannot see the picture is told: the axes, and where the curves end.
  function told(p) {
    const panel = panels[p], ends = methods.filter((m, k) => seen(k) && m.curves[panel.key]).map((m) => {
      const { y } = m.curves[panel.key];
      return `${m.text} ${digits(y[y.length - 1])}`;
    });
    const listed = ends.length > 8 ? [...ends.slice(0, 8), `and ${ends.length - 8} more`] : ends;
    return `${panel.title} against ${state.axis.title.toLowerCase()}, ${ends.length} curve${ends.length === 1 ? "" : "s"}. At the end: ${listed.join("; ") || "none"}.`;
  }

  function drawOne(p) {
    const { reach, data, layout: view } = report.drawing(p), plot = byId(`plot-${p}`);
    plot.unitSize = reach.size; // hover.js reads the pointer's place in it
    plot.setAttribute("aria-label", told(p));
    Plotly.react(plot, data, printing() ? { ...view, ...PAPER } : view, CONFIG);
  }

  const stale = new Set(), near = new Set();
  const watch = methods.length > MANY ? new IntersectionObserver((entries) => entries.forEach((entry) => {
    const p = panels.findIndex((_, q) => entry.target.id === `plot-${q}`);
    near[entry.isIntersecting ? "add" : "delete"](p);
    if (near.has(p) && stale.delete(p)) { drawOne(p); }
  }), { rootMargin: "400px" }) : null;

  function draw() {
    const whole = !watch || printing();
    panels.forEach((_, p) => { if (whole || near.has(p)) { stale.delete(p); drawOne(p); } else { stale.add(p); } });
  }

  const links = byId("network") ? ["up_mbit", "down_mbit", "latency_ms"] : [];
  const choices = [...document.querySelectorAll("#axes input")];

  // The controls say what is chosen, also where the address chose it.
  function sync() {
    choices.forEach((input, a) => { input.checked = axes[a] === state.axis; });
    byId("log-x").checked = state.logX;
    links.filter((name) => byId(name) !== document.activeElement).forEach((name) => { byId(name).value = state.network[name]; });
    if (byId("compute")) { byId("compute").checked = state.network.compute; }
    panels.forEach((_, p) => { const box = byId(`log-y-${p}`); if (box) { box.checked = state.logY[p]; } });
  }

  choices.forEach((input, a) => input.addEventListener("change", () => { state.axis = axes[a]; state.logX = axes[a].log; changed(); }));
  byId("log-x").addEventListener("change", (event) => { state.logX = event.target.checked; changed(); });
  links.forEach((name) => byId(name).addEventListener("input", (event) => {
    const value = event.target.valueAsNumber, sound = value > 0 || (value === 0 && name === "latency_ms");
    event.target.setAttribute("aria-invalid", String(!sound));
    if (sound) { state.network[name] = value; changed(); }
  }));
  byId("compute")?.addEventListener("change", (event) => { state.network.compute = event.target.checked; changed(); });
  panels.forEach((_, p) => byId(`log-y-${p}`)?.addEventListener("change", (event) => { state.logY[p] = event.target.checked; changed(); }));
  onChange(sync);
  onChange(draw);
  sync();
  draw();
  if (watch) { panels.forEach((_, p) => watch.observe(byId(`plot-${p}`))); }
})();
