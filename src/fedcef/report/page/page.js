"use strict";
// What all parts of the page share: the data, what is chosen, units, and who must be told of a change.
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { methods, axes, panels, network } = data;
  // Curves over the same rounds share what it took; a curve without a band is its own least and greatest.
  methods.forEach((m) => Object.entries(m.curves).forEach(([key, c]) => { m.curves[key] = { low: c.y, high: c.y, ...m.x[c.x], ...c }; }));
  const dark = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const state = { axis: axes[0], logX: axes[0].log, logY: panels.map((p) => p.log), shown: methods.map(() => true),
    filter: "", group: "", network: { ...network } };
  const listeners = [];
  const changed = () => listeners.forEach((listen) => listen());

  const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
  const TIMES = [[86400, "days"], [3600, "h"], [60, "min"]];
  const byteUnit = (typical) => SIZES.find(([size]) => typical >= size) || [1, "B"];
  const timeUnit = (high) => TIMES.find(([size]) => high >= 3 * size) || [1, "s"];
  const digits = (v) => (v === null || v === undefined ? "–" : v === 0 ? "0" : Math.abs(v) >= 1e-3 && Math.abs(v) < 1e6 ? String(+v.toPrecision(4)) : v.toExponential(2));
  const bytes = (v) => { const [size, name] = byteUnit(v); return `${digits(v / size)} ${name}`; };
  const seconds = (v) => { if (v === null) { return "–"; } const [size, name] = timeUnit(v); return `${digits(+(v / size).toPrecision(3))} ${name}`; };
  const amount = (key, v) => (key.endsWith("bytes") ? bytes(v) : key === "round" ? `round ${digits(Math.floor(v))}` : seconds(v));

  // Pictures and print are light whatever the screen is.
  const isDark = () => dark.matches && !root.classList.contains("light");
  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  function inLight(build) {
    const already = root.classList.contains("light");
    root.classList.add("light");
    try { return build(); } finally { root.classList.toggle("light", already); }
  }

  // A curve is seen unless it was hidden or the filter leaves it out.
  const matches = (k) => methods[k].text.toLowerCase().includes(state.filter.toLowerCase().trim());
  const seen = (k) => state.shown[k] && matches(k);

  // Seconds so far over the chosen links, as in link_time.py; unknown where the number of clients is.
  function networkTime(c) {
    const { up_mbit, down_mbit, latency_ms, compute } = state.network;
    return c.round.map((round, i) => {
      const up = c.wire_up_bytes[i], down = c.wire_bytes[i] - up;
      if (!c.participants || up === null || c.wire_bytes[i] === null || (compute && c.wall_s[i] === null)) { return null; }
      return latency_ms / 1e3 * round + (8e-6 * (up / up_mbit + down / down_mbit) + (compute ? c.wall_s[i] : 0)) / c.participants;
    });
  }

  // A curve's values along an axis; unknown where its runs had no clock.
  const along = (c, key) => (key === "network_s" ? networkTime(c) : c[key] || c.round.map(() => null));

  function download(name, kind, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type: kind }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  dark.addEventListener("change", changed);
  return { ...data, state, byteUnit, timeUnit, digits, bytes, seconds, amount, css, inLight, matches, seen, along, changed, download,
    onChange: (listen) => listeners.push(listen), byId: (id) => document.getElementById(id), color: (m) => (isDark() ? m.dark : m.color), isDark };
})();
