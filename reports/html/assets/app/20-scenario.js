// One scenario: everything is built when it is opened.
N.scenario = (id, around) => {
  const s = N.json("s" + id), E = N.el;
  const cls = s.state.replace(/ /g, "-");
  const parts = [
    E("nav", { class: "crumbs", "aria-label": "Scenarios" },
      E("a", { href: "#", text: "← all scenarios" }),
      around.before !== null && E("a", { href: "#s" + around.before, text: "previous", title: "key: [" }),
      around.after !== null && E("a", { href: "#s" + around.after, text: "next", title: "key: ]" })),
    E("h1", { text: s.name }),
    E("p", { class: "lead" }, E("span", { class: "verdict " + cls, text: s.state }), s.sentence ? " " : null,
      s.sentence && E("span", { class: "sentence", id: "sentence", text: s.sentence })),
  ];
  for (const c of s.contradictions || [])
    parts.push(E("p", { class: "notice bad" }, E("strong", { text: "Its own data contradicts this verdict: " }), c));
  const facts = E("p", { class: "facts" });
  const row = document.getElementById("r" + id);
  for (const td of row.querySelectorAll("td.n"))
    if (td.textContent.trim()) facts.append(E("span", {}, td.dataset.label + " ", E("b", { text: td.textContent.trim() })));
  for (const [name, value] of s.figures || []) facts.append(E("span", {}, name + " ", E("b", { text: value })));
  if (s.location) facts.append(E("span", {}, "at ", E("code", { text: s.location })));
  if (s.labels && s.labels.length) facts.append(E("span", { text: s.labels.join(", ") }));
  parts.push(facts, N.rerun(s.rerun));
  if (s.reported) parts.push(N.reported(s));
  parts.push(...N.traces(s.traces || []));

  const clusters = (s.clusters || []).map(i => N.json("c" + i));
  const charts = [];
  clusters.forEach((c, i) => {
    const view = new N.View(c.length);
    const section = E("section", { "aria-label": "Cluster " + (i + 1) });
    if (clusters.length > 1) section.append(E("h2", { text: "Cluster " + (i + 1) + " of " + clusters.length }));
    const line = N.timeline(view, c, s, i);
    const left = E("div", {}, E("h2", {}, "Timeline", E("small", {
      text: [c.agent, N.plural(c.nodes.filter(n => n.role === "node").length, "node"), c.network].filter(Boolean).join(" · ") })), line.element);
    const right = E("div", {}, E("h2", {}, "Topology", E("small", { text: "at the cursor" })),
      N.topology(view, c, s), N.steps(view, c, s), N.logs(view, c));
    section.append(E("div", { class: "cols" }, left, right));
    left.append(...N.beneath(c, s, i));
    charts.push(line);
    parts.push(section);
  });
  if (!clusters.length) parts.push(...N.beneath(null, s, 0));
  const article = document.getElementById("scenario");
  article.replaceChildren(...parts);
  return { start: () => charts.forEach(c => c.start()), stop: () => charts.forEach(c => c.stop()),
    redraw: () => charts.forEach(c => c.redraw()), article };
};

// What stands below the timeline.
N.beneath = (c, s, i) => {
  const E = N.el, parts = [];
  if (i === 0 && s.reach && s.reach.length) parts.push(E("h2", { text: "Expected and actual reachability" }), N.reach(s.reach));
  if (i === 0 && s.invariants && s.invariants.length) parts.push(E("h2", { text: "Invariants" }), N.invariants(s.invariants));
  if (c && c.faults.length) parts.push(E("h2", { text: "What was broken" }), N.faults(c));
  if (c && c.moments.length) parts.push(E("h2", {}, "Kernel and leases",
    E("small", { text: c.moments.map(m => m.when).join(", ") })), N.state(c));
  if (i === 0 && s.message) parts.push(E("details", { class: "dump" }, E("summary", { text: "The whole message of the assertion" }),
    E("pre", { class: "message", tabindex: 0, text: s.message })));
  return parts;
};

// The faults of a cluster: what each is, and what should be felt.
N.faults = c => {
  const E = N.el, lanes = [...new Set(c.faults.map(f => f.lane))];
  const params = f => Object.entries(f.params || {}).map(([k, v]) => k + "=" + v).join(" ");
  return E("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "What was broken" }, E("table", { class: "diff faults" },
    E("thead", {}, E("tr", {}, ["fault", "id", "component", "at", "with", "promised"].map(text => E("th", { scope: "col", text })))),
    E("tbody", {}, lanes.map(lane => {
      const all = c.faults.filter(f => f.lane === lane), f = all[0];
      return E("tr", {}, [f.name + (all.length > 1 ? " ×" + all.length : ""), f.id || "", f.component, (f.nodes || []).join(", "), params(f), f.promised]
        .map(text => E("td", { text })));
    }))));
};

N.rerun = command => {
  const said = N.el("span", { class: "muted", "aria-live": "polite" });
  return N.el("p", { class: "rerun" }, N.el("span", { class: "muted", text: "Run it again" }),
    N.el("code", { text: command }), N.el("button", { type: "button", text: "copy", onclick: async () => {
      try { await navigator.clipboard.writeText(command); said.textContent = "copied"; }
      catch { said.textContent = "not allowed here: select it"; }
    } }), said);
};

// What the report said: lines as they were wrapped in a file become paragraphs; indented ones stay.
N.reported = s => N.el("details", { class: "reported", open: s.state === "passed" }, N.el("summary", { text: "What was reported" }),
  s.reported.split(/\n\s*\n/).map(p => N.el("p", { text: p.replace(/\n(?=\S)/g, " ") })));

// A followed packet: its hops in order, the one at which it died in red.
N.deadHop = t => {
  const marked = t.hops.findIndex(h => h.dead);
  return marked >= 0 ? marked : t.hops.findIndex(h => !h.seen);
};

// The first packet that was followed is shown, others are folded.
N.traces = traces => {
  const E = N.el, rest = traces.slice(1);
  const parts = traces.slice(0, 1).map(t => E("section", { class: "trace", "aria-label": "Path of the packet" },
    E("h2", {}, t.sentence ? "Where the packet died" : "A packet that came through", E("small", { text: N.traceName(t) })), N.path(t)));
  for (const t of rest) parts.push(E("details", { class: "trace" }, E("summary", { text: "Another packet that was followed: " + N.traceName(t) }),
    t.sentence && E("p", { class: "sentence", text: t.sentence }), N.path(t)));
  return parts;
};

N.traceName = t => t.from + " → " + t.to + (t.cause ? " · " + t.cause : "");

N.path = t => {
  const E = N.el, dead = N.deadHop(t), box = E("div");
  for (const way of ["request", "reply"]) {
    const hops = t.hops.map((h, i) => ({ ...h, i })).filter(h => h.direction === way);
    if (!hops.length) continue;
    const first = (hops.find(h => h.at) || {}).at, groups = [];
    for (const h of hops) {
      const last = groups[groups.length - 1];
      if (last && last[0].node === h.node) last.push(h); else groups.push([h]);
    }
    const hop = h => {
      const said = h.at ? "+" + ((h.at - first) / 1e3).toFixed(0) + " µs" : h.i === dead ? "died here" : h.seen ? "seen" : "not seen";
      return E("li", { class: h.i === dead ? "dead" : h.seen ? "seen" : "unseen", title: h.node + ", " + h.device + ": " + said },
        E("b", { text: h.device }), E("span", { text: said }));
    };
    box.append(E("div", { class: "way" }, E("span", { class: "pathname", text: way }),
      E("ol", { class: "hops", "aria-label": way }, groups.map(g => E("li", { class: "on" }, E("span", { text: g[0].node }), E("ol", { "aria-label": g[0].node }, g.map(hop)))))));
  }
  if (t.details && t.details.length) box.append(E("pre", { class: "message", text: t.details.join("\n") }));
  return box;
};

// Expected beside actual: a row for each source, a column for each target.
N.reach = reach => {
  const E = N.el, froms = [...new Set(reach.map(r => r.from))].sort(), tos = [...new Set(reach.map(r => r.to))].sort();
  const by = new Map(reach.map(r => [r.from + "\n" + r.to, r]));
  const sign = yes => yes ? "✓" : "✕";
  const wrong = reach.filter(r => r.want !== r.got);
  const table = E("table", { class: "matrix" }, E("thead", {}, E("tr", {}, E("td", { class: "none" }),
    tos.map((t, i) => E("th", { scope: "col", title: t, text: froms.length + tos.length > 14 ? i + 1 : t })))),
  E("tbody", {}, froms.map(f => E("tr", {}, E("th", { scope: "row", text: f }), tos.map(t => {
    const r = by.get(f + "\n" + t);
    if (!r) return E("td", { class: "none" });
    const said = (r.want ? "an answer" : "none") + " expected, " + (r.got ? "answered" : "not answered") + ", " + r.lost + " of " + r.sent + " lost";
    return E("td", { class: r.want === r.got ? "" : "wrong", title: said, "aria-label": said, text: sign(r.want) + " " + sign(r.got) });
  })))));
  return E("div", {}, E("p", { class: "legend", text: "Expected, then actual: ✓ an answer, ✕ none. " +
    (wrong.length ? N.plural(wrong.length, "pair") + " of " + reach.length + " wrong." : "All " + reach.length + " pairs are as expected.") }),
  E("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Reachability" }, table),
  froms.length + tos.length > 14 && E("p", { class: "legend", text: tos.map((t, i) => (i + 1) + " " + t).join("   ") }));
};

N.invariants = list => N.el("table", { class: "diff inv" }, N.el("tbody", {}, list.map(i => N.el("tr", {},
  N.el("td", {}, N.el("span", { class: "verdict " + (i.ok ? "passed" : i.waived ? "skipped" : "failed"),
    text: i.ok ? "holds" : i.waived ? "waived" : "does not hold" })),
  N.el("td", {}, i.name, (i.details || []).map(d => N.el("div", { class: "muted mono", text: d })))))));
