"use strict";
// What all curves have reached at the place under the pointer.
(() => {
  const { methods, panels, state, digits, bytes, seconds, amount, seen, along, byId, onChange } = report;
  const MOST = 10; // lines
  const SVG = "http://www.w3.org/2000/svg";

  function element(kind, className, text) {
    const made = document.createElement(kind);
    made.className = className;
    if (text !== undefined) { made.textContent = text; }
    return made;
  }

  function swatch(k) {
    const picture = document.createElementNS(SVG, "svg"), use = document.createElementNS(SVG, "use");
    picture.setAttribute("class", "swatch");
    picture.setAttribute("viewBox", "0 0 36 14");
    use.setAttribute("href", `#look-${k}`);
    picture.append(use);
    return picture;
  }

  // The last point of every curve at or before x.
  function standing(p, x) {
    const found = [];
    methods.forEach((m, k) => {
      const c = m.curves[panels[p].key];
      if (!c || !seen(k)) { return; }
      const xs = along(c, state.axis.key);
      let at = -1;
      xs.forEach((value, i) => { if (value !== null && value <= x && (!state.logX || value > 0)) { at = i; } });
      if (at >= 0 && c.y[at] !== null) { found.push({ k, m, c, at, y: c.y[at], ended: at === xs.length - 1 }); }
    });
    return found;
  }

  function line(panel, one, near) {
    const { c, at, ended } = one;
    const row = element("li", one === near ? "near" : ended ? "ended" : ""), unit = panel.unit === "%" ? "%" : panel.unit && ` ${panel.unit}`;
    const range = c.high[at] > c.low[at] ? ` (${digits(c.low[at])} to ${digits(c.high[at])})` : "";
    row.append(swatch(one.k), element("span", "who", one.m.text), element("span", "value", digits(one.y) + unit + range));
    return row;
  }

  function fill(box, p, x, pointed) {
    const panel = panels[p], found = standing(p, x);
    if (!found.length) { return false; }
    const distance = (one) => Math.abs(state.logY[p] ? Math.log(one.y / pointed) : one.y - pointed);
    const near = found.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    const told = [...found].sort((a, b) => distance(a) - distance(b)).slice(0, MOST).sort((a, b) => b.y - a.y);
    const list = element("ul", "");
    told.forEach((one) => list.append(line(panel, one, near)));
    const { c, at } = near, time = along(c, c.sim_s ? "sim_s" : "network_s")[at];
    const facts = `round ${digits(c.round[at])} · wire ${bytes(c.wire_bytes[at])} · paper ${bytes(c.paper_bytes[at])} · wall ${seconds(c.wall_s[at])}` +
      (time === null ? "" : ` · ${c.sim_s ? "simulated" : "network"} ${seconds(time)}`);
    const more = found.length > MOST ? [element("div", "more", `and ${found.length - MOST} further away`)] : [];
    box.replaceChildren(element("div", "at", `Until ${amount(state.axis.key, x)}`), list, ...more, element("div", "facts-of", `${near.m.text}: ${facts}`));
    return true;
  }

  panels.forEach((_, p) => {
    const plot = byId(`plot-${p}`), box = element("div", "hover"), guide = element("div", "guide");
    plot.after(box, guide);
    const hide = () => { box.style.display = guide.style.display = "none"; };
    function follow(event) {
      const view = plot._fullLayout, frame = plot.getBoundingClientRect();
      if (!view || !view.xaxis) { return; }
      const { xaxis, yaxis } = view, px = event.clientX - frame.left - xaxis._offset, py = event.clientY - frame.top - yaxis._offset;
      if (px < 0 || px > xaxis._length || py < 0 || py > yaxis._length) { hide(); return; }
      if (!fill(box, p, xaxis.p2d(px) * plot.unitSize, yaxis.p2d(py))) { hide(); return; }
      box.style.display = guide.style.display = "block";
      const left = event.clientX - frame.left, right = left > frame.width / 2;
      guide.style.left = `${left}px`;
      guide.style.top = `${plot.offsetTop + yaxis._offset}px`;
      guide.style.height = `${yaxis._length}px`;
      // beside the pointer, and never wider than the window
      box.style.left = right ? "auto" : `${Math.min(left + 16, Math.max(0, frame.width - box.offsetWidth))}px`;
      box.style.right = right ? `${Math.min(frame.width - left + 16, Math.max(0, frame.width - box.offsetWidth))}px` : "auto";
      box.style.top = `${plot.offsetTop + yaxis._offset + 8}px`;
    }
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", (event) => { if (event.pointerType !== "mouse") { follow(event); } });
    plot.addEventListener("pointerleave", hide);
    onChange(hide);
  });
})();
