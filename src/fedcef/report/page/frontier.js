"use strict";
(() => {
  const { points, references, front, unit } = report.lead;
  const { css, isDark, onChange } = report;
  const family = () => getComputedStyle(document.body).fontFamily;
  const number = (v) => String(+v.toPrecision(4));
  const hover = (p) => `<b>${p.name}</b><br>${p.y.toFixed(2)}%${p.spread ? ` ± ${p.spread.toFixed(2)}` : ""}<br>` +
    `${number(p.x)} ${unit}${p.up === null ? "" : ` (up ${number(p.up)}, down ${number(p.down)})`}<br>${p.family}`;

  // Names of points that lie close to the last named one would cover each other; hovering tells them.
  const [low, high] = [Math.min, Math.max].map((of) => of(...points.map((p) => p.y)));
  const reach = Math.log10(Math.max(...points.map((p) => p.x)) / Math.min(...points.map((p) => p.x))) || 1;
  let last = null;
  points.forEach((p) => {
    p.named = p.front && (!last || Math.log10(p.x / last.x) > 0.2 * reach || p.y - last.y > 0.05 * (high - low));
    if (p.named) { last = p; }
  });

  const narrow = () => innerWidth < 700; // no room for names, which hovering tells

  function trace(p) {
    const color = isDark() ? p.dark : p.color, opacity = p.front ? 1 : 0.4;
    return { x: [p.x], y: [p.y], mode: p.named && !narrow() ? "markers+text" : "markers", text: [p.name], textposition: "top left", opacity,
      textfont: { color, size: 11 }, hovertemplate: hover(p) + "<extra></extra>", cliponaxis: false,
      marker: { symbol: p.symbol, size: 11, color, line: p.symbol.endsWith("-open") ? { color, width: 1.8 } : { color: css("--paper"), width: 1 } },
      ...(p.spread ? { error_y: { type: "data", array: [p.spread], color, thickness: 1.2, width: 3 } } : {}) };
  }

  function draw() {
    const xs = [...points, ...references].map((p) => p.x), end = Math.max(...xs) * 1.6, start = Math.min(...xs) / 2.2;
    const steps = { x: [...front.map((p) => p[0]), end], y: [...front.map((p) => p[1]), front[front.length - 1][1]], mode: "lines",
      line: { shape: "hv", color: css("--soft"), width: 1.4 }, hoverinfo: "skip" };
    const stars = references.filter((p) => p.y !== null).map((p) => ({ x: [p.x], y: [p.y], mode: "markers+text", text: [p.name], textposition: "bottom left",
      textfont: { color: css("--ink"), size: 11 }, hovertemplate: hover(p) + "<extra></extra>", cliponaxis: false,
      marker: { symbol: "star-open", size: 13, color: css("--ink"), line: { width: 1.4 } } }));
    const lines = references.filter((p) => p.y === null);
    const grid = { gridcolor: css("--line"), linecolor: css("--soft"), zeroline: false, ticks: "outside", ticklen: 4,
      tickcolor: css("--soft"), automargin: true };
    Plotly.react("plot-frontier", [steps, ...points.map(trace), ...stars], {
      margin: { l: 52, r: 16, t: 14, b: 48 }, showlegend: false, hovermode: "closest", dragmode: "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: family(), size: 13, color: css("--soft") },
      hoverlabel: { bgcolor: css("--raised"), bordercolor: css("--line"), align: "left", font: { family: family(), color: css("--ink") } },
      xaxis: { ...grid, type: "log", range: [Math.log10(start), Math.log10(end)], tickformat: "~g", dtick: end / start < 200 ? "D2" : 1,
        title: { text: `${narrow() ? "Sent in the whole run" : "Sent on the wire in the whole run, up and down, all clients"} (${unit})`, standoff: 8 } },
      shapes: lines.map((p) => ({ type: "line", x0: p.x, x1: p.x, yref: "paper", y0: 0, y1: 1, line: { color: css("--soft"), width: 1, dash: "dot" } })),
      annotations: lines.map((p) => ({ x: Math.log10(p.x), yref: "paper", y: 0.02, yanchor: "bottom", xanchor: "right", text: p.name, textangle: -90,
        showarrow: false, font: { size: 11, color: css("--soft") } })),
      yaxis: { ...grid, title: { text: "Test accuracy (%)" } },
    }, { responsive: true, displayModeBar: false, doubleClick: "reset" });
  }

  onChange(draw);
  draw();
})();
