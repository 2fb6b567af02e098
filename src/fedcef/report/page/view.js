"use strict";
// What is chosen stands in the address, so that a view can be shared and is there again after a reload.
(() => {
  const { methods, axes, panels, network, groupings, state, byId, changed, onChange } = report;
  const LINKS = ["up_mbit", "down_mbit", "latency_ms"];
  let place = ""; // the section that was gone to

  function read() {
    const words = location.hash.slice(1), view = new URLSearchParams(words.includes("=") ? words : "");
    place = words.includes("=") ? view.get("at") || "" : words;
    state.axis = axes.find((axis) => axis.key === view.get("axis")) || axes[0];
    state.logX = view.has("logx") ? view.get("logx") === "1" : state.axis.log;
    const logY = view.get("logy") || "";
    state.logY = panels.map((panel, p) => (logY.length === panels.length ? logY[p] === "1" : panel.log));
    const only = view.getAll("only"), hidden = view.getAll("hide");
    state.shown = methods.map((m) => (only.length ? only.includes(m.text) : !hidden.includes(m.text)));
    state.filter = view.get("filter") || "";
    state.group = groupings.some(([key]) => key === view.get("group")) ? view.get("group") : "";
    LINKS.forEach((name) => {
      const value = view.has(name) ? Number(view.get(name)) : NaN;
      state.network[name] = value > 0 || (value === 0 && name === "latency_ms") ? value : network[name];
    });
    state.network.compute = view.has("compute") ? view.get("compute") === "1" : network.compute;
  }

  // Only what differs from how the page opens.
  function write() {
    const view = new URLSearchParams(), bits = (flags) => flags.map((flag) => (flag ? "1" : "0")).join("");
    if (state.axis !== axes[0]) { view.set("axis", state.axis.key); }
    if (state.logX !== state.axis.log) { view.set("logx", bits([state.logX])); }
    if (state.logY.some((log, p) => log !== panels[p].log)) { view.set("logy", bits(state.logY)); }
    const on = methods.filter((_, k) => state.shown[k]), off = methods.filter((_, k) => !state.shown[k]);
    (on.length && on.length < off.length ? on : off).forEach((m) => view.append(on.length && on.length < off.length ? "only" : "hide", m.text));
    if (state.filter) { view.set("filter", state.filter); }
    if (state.group) { view.set("group", state.group); }
    LINKS.filter((name) => state.network[name] !== network[name]).forEach((name) => view.set(name, state.network[name]));
    if (state.network.compute !== network.compute) { view.set("compute", bits([state.network.compute])); }
    if (place && [...view].length) { view.set("at", place); }
    const words = view.toString() || place;
    if (words !== location.hash.slice(1)) { history.replaceState(null, "", words ? `#${words}` : location.pathname + location.search); }
  }

  document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault(); // the address keeps the view
    place = link.hash.slice(1);
    byId(place).scrollIntoView();
    write();
  }));
  addEventListener("hashchange", () => { read(); changed(); });
  onChange(write);
  read();
  if (place && location.hash.includes("=")) { addEventListener("load", () => byId(place)?.scrollIntoView()); }
})();
