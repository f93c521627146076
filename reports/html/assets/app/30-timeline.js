// The timeline: faults and events on top, a ribbon for each probed pair below, one time axis for all (uPlot).
N.ROW = 20;
N.SHOWN = 20; // pairs at first
N.MARGIN = 14; // on both sides, so that the first and the last time and mark are whole

N.timeline = (view, c, s, nth) => {
  const E = N.el, charts = [], key = "t" + nth;
  const readout = E("span", { class: "readout", id: "readout" + nth });
  const button = (text, label, f) => E("button", { type: "button", "aria-label": label, title: label, text, onclick: f });
  const holder = E("div", { class: "plots" });
  const element = E("div", {},
    E("div", { class: "bar" }, readout, E("div", { class: "zoom" }, button("−", "Zoom out", () => view.zoom(2)), button("+", "Zoom in", () => view.zoom(0.5)),
      button("whole", "Show the whole time", () => view.setRange(0, view.length)))), holder);

  const began = s.began[nth], ended = s.ended[nth];
  const pairs = [...c.pairs].sort((a, b) => b.lost - a.lost || (a.from + a.to < b.from + b.to ? -1 : 1));
  const top = N.slowest(pairs);

  const options = (height, axis, draw) => ({
    width: 300, height, padding: [0, N.MARGIN, 0, N.MARGIN], legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false },
      sync: { key, setSeries: false, scales: ["x", null] } },
    scales: { x: { time: false, range: () => view.range }, y: { range: () => [0, 1] } },
    axes: [axis ? { stroke: () => N.css("--muted"), font: "11px system-ui", size: 26, gap: 3, space: 70,
      grid: { stroke: () => N.css("--line"), width: 1 }, ticks: { stroke: () => N.css("--line"), width: 1, size: 4 },
      values: (u, v) => v.map(x => +(x / 1000).toFixed(3) + " s") } : { show: false }, { show: false }],
    series: [{}, { show: false }],
    hooks: {
      drawClear: [u => { N.shade(u, c, began, ended, !axis); }],
      draw: [draw],
      setCursor: [u => { if (u.cursor.left >= 0 && u.cursor.event) view.setCursor(u.posToVal(u.cursor.left, "x"), "chart"); }],
      setSelect: [u => {
        if (u.select.width < 3) return;
        view.setRange(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
        u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }],
    },
  });
  const add = (name, cls, height, axis, draw, label) => {
    const plot = E("div", { class: "plot", tabindex: 0, role: "img", "aria-label": label, style: "height:" + height + "px" });
    plot.addEventListener("keydown", e => N.timelineKey(view, e));
    plot.addEventListener("dblclick", () => view.setRange(0, view.length));
    const rowElement = E("div", { class: "chart " + cls }, name, plot);
    const chart = { plot, height, options: options(height, axis, draw), u: null };
    chart.make = () => {
      chart.options.width = Math.max(plot.clientWidth, 50);
      chart.u = new uPlot(chart.options, [[0, view.length], [null, null]], plot);
    };
    charts.push(chart);
    return rowElement;
  };

  const lanes = N.lanes(c);
  holder.append(add(E("div", { class: "name" }, lanes.map(l => E("div", { class: l.fault ? "f" : "", title: l.name, text: l.name }))),
    "lanes", lanes.length * N.ROW + 27, true, u => N.drawLanes(u, lanes, c),
    "Faults and events; the same as a table below"));
  const ribbon = p => add(
    E("div", { class: "name", title: p.from + " → " + p.to }, p.from + " → " + p.to,
      E("span", { class: p.lost ? "lost" : "", text: p.lost ? N.count(p.lost) + " of " + N.count(p.sent) + " lost" : N.count(p.sent) + " sent" })),
    "ribbon", 34, false, u => N.drawRibbon(u, p, top),
    p.from + " to " + p.to + ": " + p.sent + " echoes sent, " + p.lost + " lost" + (p.outages ? ", " + N.plural(p.outages.length, "outage") : ""));
  for (const p of pairs.slice(0, N.SHOWN)) holder.append(ribbon(p));
  if (pairs.length > N.SHOWN) {
    const more = button("show all " + pairs.length + " pairs", "Show all pairs", () => {
      const from = charts.length;
      for (const p of pairs.slice(N.SHOWN)) holder.insertBefore(ribbon(p), more.parentElement);
      charts.slice(from).forEach(ch => ch.make());
      more.parentElement.remove();
    });
    holder.append(E("p", { class: "more" }, more));
  }
  element.append(E("p", { class: "legend" },
    E("span", {}, E("i", { style: "background:var(--fault)" }), "fault, lighter until proved"),
    E("span", {}, E("i", { style: "background:var(--fail)" }), "share of echoes lost"),
    E("span", {}, E("i", { style: "background:var(--rtt)" }), "round trip time: mean, and slowest up to " + N.rtt(top)),
    E("span", { text: "drag to zoom, double click for the whole" })), N.eventTable(c));

  const say = t => {
    const broken = N.brokenAt(c, t).map(f => f.name), step = [...c.steps].reverse().find(x => x.t <= t);
    const losing = c.pairs.filter(p => N.lossAt(p, t) > 0).length;
    readout.replaceChildren(E("b", { text: N.time(t) }), " · " + (broken.length ? broken.join(", ") : "nothing broken") + " · " +
      (losing ? losing + " of " + N.plural(c.pairs.length, "pair") + " losing" : "no pair losing") + (step ? " · " + step.text : ""));
  };
  view.onCursor.push((t, from) => {
    say(t);
    if (from === "chart") return;
    for (const ch of charts) if (ch.u) ch.u.setCursor({ left: ch.u.valToPos(t, "x"), top: 5 }, false, false);
  });
  view.onRange.push((a, b) => { for (const ch of charts) if (ch.u) ch.u.setScale("x", { min: a, max: b }); });

  let observer;
  return {
    element,
    start: () => {
      charts.forEach(ch => ch.make());
      observer = new ResizeObserver(() => charts.forEach(ch => {
        const w = ch.plot.clientWidth;
        if (ch.u && w > 50 && w !== ch.u.width) ch.u.setSize({ width: w, height: ch.height });
      }));
      observer.observe(holder);
      view.setCursor(N.worst(c, s, nth), "start");
    },
    stop: () => { if (observer) observer.disconnect(); charts.forEach(ch => ch.u && ch.u.destroy()); },
    redraw: () => charts.forEach(ch => ch.u && ch.u.redraw()),
  };
};

// Where to look first: in the middle of the longest outage, else at the end of the scenario.
N.worst = (c, s, nth) => {
  let best = null;
  for (const p of c.pairs) for (const o of p.outages || []) if (!best || o[1] > best[1]) best = o;
  if (s.state !== "passed") return Math.min(s.ended[nth], best ? Math.max(best[0] + best[1] / 2, 0) : s.ended[nth]);
  return best ? best[0] + best[1] / 2 : s.ended[nth];
};

// The round trip time at the top of the ribbons: what 99 of 100 buckets stay below.
N.slowest = pairs => {
  const all = pairs.flatMap(p => p.b[5].filter((_, i) => p.b[3][i] < p.b[2][i])).sort((a, b) => a - b);
  return Math.max(all.length ? all[Math.floor(all.length * 0.99)] : 0, 200);
};

N.timelineKey = (view, e) => {
  const [a, b] = view.range, step = (b - a) / 50;
  const act = { "+": () => view.zoom(0.5), "=": () => view.zoom(0.5), "-": () => view.zoom(2), "0": () => view.setRange(0, view.length),
    ArrowLeft: () => move(-step), ArrowRight: () => move(step), Home: () => view.setCursor(a, "key"), End: () => view.setCursor(b, "key") }[e.key];
  const move = d => {
    const t = view.t + d;
    if (t < a || t > b) view.setRange(a + d, b + d);
    view.setCursor(t, "key");
  };
  if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
  e.preventDefault();
  act();
};
