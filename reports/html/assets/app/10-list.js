// The table of scenarios: search, filter by verdict, sort.
N.list = () => {
  const rows = [...document.querySelectorAll("#runs tbody tr[data-id]")];
  const search = document.getElementById("search"), shown = document.getElementById("shown");
  const states = [...document.querySelectorAll("button.state")];
  const names = rows.map(r => r.querySelector("a").textContent);
  const order = ["failed", "not-proven", "not-finished", "passed", "skipped"];

  const apply = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = states.filter(b => b.getAttribute("aria-pressed") === "true").map(b => b.dataset.state);
    let n = 0;
    for (const r of rows) {
      const fits = words.every(w => r.dataset.search.includes(w)) && (!chosen.length || chosen.includes(r.dataset.state));
      r.hidden = !fits;
      if (fits) n++;
    }
    shown.textContent = n === rows.length ? "" : N.count(n) + " of " + N.plural(rows.length, "scenario");
  };
  search.addEventListener("input", apply);
  search.form.addEventListener("submit", e => e.preventDefault());
  for (const b of states) b.addEventListener("click", () => {
    b.setAttribute("aria-pressed", b.getAttribute("aria-pressed") !== "true");
    apply();
  });

  const key = {
    state: r => order.indexOf(r.dataset.state), name: r => names[rows.indexOf(r)],
    lost: r => +r.dataset.lost, outage: r => +r.dataset.outage,
    recovery: r => { const n = +r.dataset.recovery; return n < 0 ? Infinity : n; }, duration: r => +r.dataset.duration,
  };
  const heads = [...document.querySelectorAll("#runs th")];
  const sortBy = (th, up) => {
    for (const h of heads) h.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const f = key[th.dataset.sort], keyed = rows.map((r, i) => [f(r), i, r]);
    keyed.sort(([a, i], [b, j]) => (a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1) || i - j);
    document.querySelector("#runs tbody").append(...keyed.map(k => k[2]));
  };
  for (const th of heads) th.querySelector("button").addEventListener("click", () => {
    const was = th.getAttribute("aria-sort"), text = ["state", "name"].includes(th.dataset.sort);
    sortBy(th, was ? was !== "ascending" : text);
  });
  if (rows.length) sortBy(heads[0], true); // what failed comes first
  apply();
  return { visible: () => [...document.querySelectorAll("#runs tbody tr[data-id]")].filter(r => !r.hidden), search };
};
