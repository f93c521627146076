// What is painted on the canvases of the timeline. Positions are in canvas pixels.
N.lanes = c => {
  const lanes = [];
  if (c.steps.length) lanes.push({ name: "steps", kind: "steps" });
  for (const lane of new Set(c.faults.map(f => f.lane))) {
    const of = c.faults.filter(f => f.lane === lane);
    lanes.push({ name: of[0].name, kind: "fault", fault: true, of });
  }
  if (c.marks.some(m => m.kind === "start" || m.kind === "exit")) lanes.push({ name: "agents, etcd", kind: "process" });
  if (c.marks.some(m => m.kind === "lease" || m.kind === "unseen")) lanes.push({ name: "leases and keys", kind: "lease" });
  if (c.icmp && c.icmp.length) lanes.push({ name: "ICMP errors", kind: "icmp" });
  return lanes;
};

// Behind everything: the time outside the scenario is dimmed, and the time of a fault tinted.
N.shade = (u, c, began, ended, tint) => {
  const { ctx, bbox } = u, at = t => u.valToPos(t, "x", true), left = bbox.left, right = bbox.left + bbox.width;
  const fill = (from, to, color, alpha) => {
    const x0 = Math.max(at(from), left), x1 = Math.min(at(to), right);
    if (x1 <= x0) return;
    ctx.globalAlpha = alpha;
    ctx.fillStyle = color;
    ctx.fillRect(x0, bbox.top, x1 - x0, bbox.height);
    ctx.globalAlpha = 1;
  };
  ctx.save();
  if (tint) {
    const color = N.css("--fault-soft");
    for (const [a, b] of N.union(c.faults.filter(f => !f.once).map(f => [f.from, f.to || c.length]))) fill(a, b, color, 0.55);
  }
  fill(0, began, N.css("--soft"), 0.9);
  fill(ended, c.length, N.css("--soft"), 0.9);
  ctx.restore();
};

// Intervals that overlap become one.
N.union = spans => {
  const out = [];
  for (const s of spans.sort((a, b) => a[0] - b[0])) {
    const last = out[out.length - 1];
    if (last && s[0] <= last[1]) last[1] = Math.max(last[1], s[1]); else out.push([...s]);
  }
  return out;
};

N.drawLanes = (u, lanes, c) => {
  const { ctx, bbox } = u, r = devicePixelRatio || 1, at = t => u.valToPos(t, "x", true);
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left - N.MARGIN * r, bbox.top, bbox.width + 2 * N.MARGIN * r, bbox.height); // marks at the ends are whole
  ctx.clip();
  const labelled = matchMedia("(max-width:760px)").matches;
  lanes.forEach((l, i) => {
    const y = bbox.top + i * N.ROW * r, mid = y + N.ROW * r / 2;
    if (l.kind === "fault") for (const f of l.of) N.drawFault(ctx, f, at, y, r, c, bbox.left + bbox.width, labelled ? l.name : "");
    if (l.kind === "steps") N.drawSteps(ctx, c.steps, at, mid, r);
    if (l.kind === "process") for (const m of c.marks) if (m.kind === "start" || m.kind === "exit") N.drawMark(ctx, m.kind, at(m.t), mid, r);
    if (l.kind === "lease") for (const m of c.marks) if (m.kind === "lease" || m.kind === "unseen") N.drawMark(ctx, m.kind, at(m.t), mid, r);
    if (l.kind === "icmp") for (const e of c.icmp) N.drawMark(ctx, "icmp", at(e.t), mid, r);
  });
  ctx.restore();
};

N.drawFault = (ctx, f, at, y, r, c, end, label) => {
  const h = (N.ROW - 8) * r, top = y + 4 * r, color = f.error ? N.css("--fail") : N.css("--fault");
  ctx.fillStyle = color;
  if (f.once) {
    const x = at(f.proved || f.from);
    ctx.fillRect(x - 2 * r, top, 4 * r, h);
  } else {
    const x0 = Math.max(at(f.from), N.MARGIN * r), x1 = Math.min(at(f.to || c.length), end), xp = Math.min(Math.max(f.proved ? at(f.proved) : x1, x0), x1);
    if (x1 <= x0) return;
    ctx.globalAlpha = 0.45;
    ctx.fillRect(x0, top, Math.max(xp - x0, r), h);
    ctx.globalAlpha = 1;
    ctx.fillRect(xp, top, Math.max(x1 - xp, f.proved ? 2 * r : 0), h);
  }
  if (label) {
    ctx.fillStyle = N.css("--fg");
    ctx.font = 11 * r + "px system-ui";
    ctx.textBaseline = "middle";
    ctx.fillText(label, Math.max(at(f.from), N.MARGIN * r) + 3 * r, top + h / 2);
  }
};

// Steps too close together to be told apart share a sign, such as 1–3, at the first of them. x are their places in order.
N.stepGroups = (x, least) => {
  const groups = [];
  x.forEach((at, i) => {
    const g = groups[groups.length - 1];
    // A sign with a range is wider than one with a number.
    if (g && at - g.x < least * (g.first === g.last ? 1 : 1.6)) g.last = i + 1;
    else groups.push({ x: at, first: i + 1, last: i + 1 });
  });
  return groups;
};

N.drawSteps = (ctx, steps, at, mid, r) => {
  ctx.font = 10 * r + "px system-ui";
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (const g of N.stepGroups(steps.map(s => at(s.t)), 16 * r)) {
    const text = g.first === g.last ? String(g.first) : g.first + "–" + g.last;
    const half = Math.max(ctx.measureText(text).width / 2 + 3 * r, 7 * r);
    ctx.fillStyle = N.css("--muted");
    ctx.beginPath();
    ctx.roundRect(g.x - half, mid - 7 * r, 2 * half, 14 * r, 7 * r);
    ctx.fill();
    ctx.fillStyle = N.css("--bg");
    ctx.fillText(text, g.x, mid + r / 2);
  }
  ctx.textAlign = "left";
};

N.drawMark = (ctx, kind, x, y, r) => {
  const d = 4.5 * r;
  ctx.fillStyle = N.css({ start: "--pass", exit: "--fail", lease: "--accent", unseen: "--warn", icmp: "--fail" }[kind]);
  ctx.beginPath();
  if (kind === "start") { ctx.moveTo(x - d, y + d); ctx.lineTo(x + d, y + d); ctx.lineTo(x, y - d); }
  else if (kind === "exit") { ctx.moveTo(x - d, y - d); ctx.lineTo(x + d, y - d); ctx.lineTo(x, y + d); }
  else { ctx.moveTo(x, y - d); ctx.lineTo(x + d, y); ctx.lineTo(x, y + d); ctx.lineTo(x - d, y); }
  ctx.fill();
};

// A ribbon: how slow the answers were, from the bottom up, and in red over it the share that did not come.
N.drawRibbon = (u, p, top) => {
  const { ctx, bbox } = u, r = devicePixelRatio || 1, [min, max] = [u.scales.x.min, u.scales.x.max];
  const [at, long, sent, lost, mean, slow] = p.b, bottom = bbox.top + bbox.height - 2 * r, room = bbox.height - 6 * r;
  const high = us => Math.max(Math.min(us / top, 1) * room, r);
  const colors = { slow: N.css("--rtt-soft"), mean: N.css("--rtt"), lost: N.css("--fail") };
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const [color, values, draws] of [
    [colors.slow, i => high(slow[i]), i => lost[i] < sent[i]],
    [colors.mean, i => high(mean[i]), i => lost[i] < sent[i]],
    [colors.lost, i => Math.max(lost[i] / sent[i] * room, 3 * r), i => lost[i] > 0]]) {
    ctx.fillStyle = color;
    for (let i = 0; i < at.length; i++) {
      if (at[i] + long[i] < min || at[i] > max || !draws(i)) continue;
      const x0 = Math.floor(u.valToPos(at[i], "x", true)), x1 = Math.ceil(u.valToPos(at[i] + long[i], "x", true)), h = values(i);
      if (color === colors.mean) ctx.fillRect(x0, bottom - h, x1 - x0 + 0.5, Math.max(1.5 * r, 1));
      else ctx.fillRect(x0, bottom - h, Math.max(x1 - x0, r) + 0.3, h);
    }
  }
  ctx.restore();
};

// All events as a table, for those who do not see the drawing and those who copy.
N.eventTable = c => {
  const E = N.el, all = [];
  c.steps.forEach((s, i) => all.push([s.t, "step " + (i + 1), s.text]));
  for (const f of c.faults) {
    all.push([f.from, "fault", f.name + " is injected"]);
    if (f.proved) all.push([f.proved, "fault", f.name + " is proved"]);
    if (f.error) all.push([f.to || f.proved || f.from, "fault", f.name + ": " + f.error]);
    if (f.to) all.push([f.to, "fault", f.name + " is healed"]);
  }
  for (const m of c.marks) all.push([m.t, m.kind === "lease" || m.kind === "unseen" ? "etcd" : "process", m.text]);
  for (const e of c.icmp || []) all.push([e.t, "ICMP", e.text]);
  for (const p of c.pairs) for (const o of p.outages || [])
    all.push([o[0], "outage", p.from + " → " + p.to + " for " + N.span(o[1]) + ", " + N.plural(o[2], "echo").replace("echos", "echoes") + " lost"]);
  all.sort((a, b) => a[0] - b[0]);
  const body = E("tbody"), fold = E("details", { ontoggle: () => {
    if (!body.childElementCount) body.append(...all.map(([t, kind, text]) => E("tr", {}, E("td", { text: N.time(t) }), E("td", { class: "muted", text: kind }), E("td", { text }))));
  } }, E("summary", { text: "All " + all.length + " events as a table" }),
  E("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events" }, E("table", { class: "events" },
    E("thead", {}, E("tr", {}, E("th", { scope: "col", text: "time" }), E("th", { scope: "col", text: "what" }), E("th", { scope: "col", text: "event" }))), body)));
  return fold;
};
