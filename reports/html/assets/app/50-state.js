// Kernel state and leases at several moments: a line that is the same at all of them is hidden at first.
N.state = c => {
  const E = N.el, all = c.moments.map((_, i) => 1 << i).reduce((a, b) => a | b, 0);
  const where = [...new Set(c.state.map(x => x.where))];
  const only = E("input", { type: "checkbox", checked: true });
  const machine = E("select", { "aria-label": "Machine" }, E("option", { value: "", text: "all machines" }), where.map(w => E("option", { value: w, text: w })));
  const what = E("select", { "aria-label": "Table" }, E("option", { value: "", text: "all tables" }),
    [...new Set(c.state.map(x => x.what))].map(w => E("option", { value: w, text: w })));
  const body = E("tbody");
  const show = () => {
    const rows = [];
    let hidden = 0;
    for (const part of c.state) {
      if ((machine.value && part.where !== machine.value) || (what.value && part.what !== what.value)) continue;
      const lines = part.lines.filter(l => !only.checked || l.h !== all);
      hidden += part.lines.length - lines.length;
      if (!lines.length) continue;
      rows.push(E("tr", { class: "group" }, E("th", { colspan: c.moments.length + 1, scope: "rowgroup", text: part.where + " · " + part.what })));
      for (const l of lines) rows.push(E("tr", {}, E("td", { class: "mono", text: l.x }), c.moments.map((_, i) => {
        const has = l.h & (1 << i), had = i > 0 && l.h & (1 << (i - 1));
        const cls = i === 0 || !has === !had ? "" : has ? " new" : " gone";
        return E("td", { class: "m" + cls, "aria-label": has ? "there" : "not there", text: has ? (cls ? "+" : "●") : (cls ? "−" : "·") });
      })));
    }
    if (!rows.length) rows.push(E("tr", {}, E("td", { class: "muted", colspan: c.moments.length + 1, text: "Nothing differs." })));
    body.replaceChildren(...rows);
    note.textContent = hidden ? N.plural(hidden, "line") + " the same at all moments" : "";
  };
  const note = E("span", { class: "muted" });
  for (const e of [only, machine, what]) e.addEventListener("change", show);
  show();
  return E("div", {}, E("div", { class: "bar" }, machine, what, E("label", {}, only, " only what differs"), note),
    E("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Kernel and leases" }, E("table", { class: "diff" },
      E("thead", {}, E("tr", {}, E("th", { scope: "col", text: "line" }), c.moments.map(m => E("th", { scope: "col", class: "m", title: N.time(m.t), text: m.when })))), body)));
};
