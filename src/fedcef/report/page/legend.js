"use strict";
// The names of the curves: hidden or seen alone by a click, narrowed by a filter, in groups by a setting.
(() => {
  const { methods, groupings, state, matches, seen, byId, changed, onChange } = report;
  const legend = byId("legend"), all = byId("show-all"), filter = byId("filter"), group = byId("group");
  const buttons = [...legend.querySelectorAll("button[aria-pressed]")];

  function show(shown) { state.shown = shown; changed(); }

  function alone(k) {
    const already = state.shown.every((s, j) => s === (j === k));
    show(state.shown.map((_, j) => already || j === k));
  }

  function head(value, members) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "group-of";
    made.textContent = `${value} (${members.length})`;
    made.title = "Hide or show them all";
    made.addEventListener("click", () => {
      const on = !members.some((k) => state.shown[k]);
      show(state.shown.map((s, k) => (members.includes(k) ? on : s)));
    });
    return made;
  }

  // The buttons in their groups; in their own order where there are none.
  let drawn = "";
  function arrange() {
    if (state.group === drawn) { return; }
    drawn = state.group;
    const values = (groupings.find(([key]) => key === state.group) || [null, null])[1];
    const parts = values === null ? buttons : [...new Set(values)].flatMap((value) => {
      const members = methods.map((_, k) => k).filter((k) => values[k] === value);
      return [head(value, members), ...members.map((k) => buttons[k])];
    });
    legend.replaceChildren(...parts, all);
  }

  function sync() {
    arrange();
    buttons.forEach((button, k) => {
      button.setAttribute("aria-pressed", String(state.shown[k]));
      button.hidden = !matches(k);
    });
    document.querySelectorAll("tr[data-method]").forEach((row) => {
      row.classList.toggle("off", !state.shown[row.dataset.method]);
      row.hidden = !matches(row.dataset.method);
    });
    if (filter && filter.value !== state.filter) { filter.value = state.filter; }
    if (group) { group.value = state.group; }
    const count = byId("count");
    if (count) { count.textContent = `${methods.filter((_, k) => seen(k)).length} of ${methods.length} shown`; }
  }

  buttons.forEach((button, k) => {
    button.addEventListener("click", (event) => (event.shiftKey ? alone(k) : show(state.shown.map((s, j) => (j === k ? !s : s)))));
    button.addEventListener("dblclick", (event) => { if (!event.shiftKey) { alone(k); } });
  });
  all.addEventListener("click", () => show(methods.map(() => true)));
  filter?.addEventListener("input", () => { state.filter = filter.value; changed(); });
  group?.addEventListener("change", () => { state.group = group.value; changed(); });
  onChange(sync);
  sync();
})();
