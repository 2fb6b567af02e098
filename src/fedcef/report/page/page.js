"use strict";
// What all parts of the page share: the data, what is chosen, units, and who must be told of a change.
const report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { methods, axes, panels, network } = data;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const state = { axis: axes[0], logX: axes[0].log, logY: panels.map((p) => p.log), shown: methods.map(() => true), network: { ...network } };
  const listeners = [];
  const changed = () => listeners.forEach((listen) => listen());

  const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];
  const TIMES = [[86400, "days"], [3600, "h"], [60, "min"]];
  const byteUnit = (typical) => SIZES.find(([size]) => typical >= size) || [1, "B"];
  const timeUnit = (high) => TIMES.find(([size]) => high >= 3 * size) || [1, "s"];
  const digits = (v) => (v === null || v === undefined ? "–" : v === 0 ? "0" : Math.abs(v) >= 1e-3 && Math.abs(v) < 1e6 ? String(+v.toPrecision(4)) : v.toExponential(2));
  const bytes = (v) => { const [size, name] = byteUnit(v); return `${digits(v / size)} ${name}`; };
  const seconds = (v) => { if (v === null) { return "–"; } const [size, name] = timeUnit(v); return `${digits(+(v / size).toPrecision(3))} ${name}`; };
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Seconds so far over the chosen links, as in link_time.py; unknown where the number of clients is.
  function networkTime(c) {
    const { up_mbit, down_mbit, latency_ms, compute } = state.network;
    return c.round.map((round, i) => {
      const up = c.wire_up_bytes[i], down = c.wire_bytes[i] - up;
      if (!c.participants || up === null || c.wire_bytes[i] === null || (compute && c.wall_s[i] === null)) { return null; }
      return latency_ms / 1e3 * round + 8e-6 / c.participants * (up / up_mbit + down / down_mbit) + (compute ? c.wall_s[i] : 0);
    });
  }

  // A curve's values along an axis; unknown where its runs had no clock.
  const along = (c, key) => (key === "network_s" ? networkTime(c) : c[key] || c.round.map(() => null));

  dark.addEventListener("change", changed);
  return { ...data, state, dark, byteUnit, timeUnit, digits, bytes, seconds, css, along, changed, onChange: (listen) => listeners.push(listen),
    byId: (id) => document.getElementById(id), color: (m) => (dark.matches ? m.dark : m.color) };
})();
