// The cluster as it was at the moment under the cursor: the control plane and the switch above, nodes with their pods
// below, and an arc for each pair that pings.
N.topology = (view, c, s) => {
  const S = N.svg, nodes = c.nodes.filter(n => n.role === "node"), members = c.nodes.filter(n => n.role !== "node");
  const podsOf = n => c.pods.filter(p => p.node === n);
  const wide = nodes.map(n => Math.max(118, podsOf(n.name).length * 62 + 14));
  const gap = 18, width = Math.max(wide.reduce((a, w) => a + w + gap, gap), members.length * (120 + gap) + gap, 420);
  const place = new Map(), boxes = [];
  let x = (width - wide.reduce((a, w) => a + w + gap, -gap)) / 2;
  const nodeY = 108, podY = nodeY + 46, switchY = 68;
  const svg = S("svg", { class: "topo", role: "img", "aria-label": "Topology at the cursor" });
  const links = S("g"), front = S("g"), paths = S("g");
  svg.append(links, front, paths);
  const text = (x, y, t, cls) => { const e = S("text", { x, y, "text-anchor": "middle", class: cls }); e.textContent = t; return e; };

  const left = (x, y, t, cls) => { const e = text(x, y, t, cls); e.setAttribute("text-anchor", "start"); return e; };
  const bar = S("rect", { class: "box", x: 16, y: switchY - 9, width: width - 32, height: 18, rx: 3 });
  front.append(bar, left(24, switchY + 4, "switch"));
  const box = ({ name, addr, role }, bx, y, w, h) => {
    const e = S("rect", { class: "box", x: bx, y, width: w, height: h, rx: 4 }), sub = left(bx + 9, y + 30, addr, "sub");
    front.append(e, left(bx + 9, y + 17, name), sub);
    boxes.push({ name, addr, role, e, sub });
  };
  const uplink = (px, y0, y1) => links.append(S("path", { class: "link quiet", d: `M${px} ${y0}V${y1}` }));
  members.forEach((m, i) => {
    const mid = width / 2 + (i - (members.length - 1) / 2) * (120 + gap);
    box(m, mid - 60, 8, 120, 36);
    uplink(mid, 44, switchY - 9);
  });
  nodes.forEach((n, i) => {
    box(n, x, nodeY, wide[i], 76);
    // The uplink is on the right, where no text is: there goes the path of a followed packet.
    const port = x + wide[i] - 16;
    uplink(port, switchY + 9, nodeY);
    place.set(n.name, { x: x + wide[i] / 2, y: nodeY + 76, top: nodeY, port });
    const own = podsOf(n.name), step = wide[i] / Math.max(own.length, 1);
    own.forEach((p, k) => {
      // The node's name stands above: a pod that is called after it is labelled by the rest.
      const px = x + step * (k + 0.5), short = p.name.startsWith(n.name + "-") ? p.name.slice(n.name.length + 1) : p.name;
      const e = S("rect", { class: "pod", x: px - 28, y: podY, width: 56, height: 20, rx: 3 }), title = S("title");
      title.textContent = p.name + " " + p.addr;
      e.append(title);
      const label = text(px, podY + 14, short.length > 9 ? short.slice(0, 8) + "…" : short);
      front.append(e, label);
      place.set(p.name, { x: px, y: podY + 20, top: podY, node: n.name });
      boxes.push({ pod: p, e, label });
    });
    x += wide[i] + gap;
  });

  let depth = 0;
  const arcs = [];
  for (const p of c.pairs) {
    const a = place.get(p.from), b = place.get(p.to);
    if (!a || !b) continue;
    // The two directions of a pair stand beside each other; those that come from a node itself lie deeper.
    const back = a.x > b.x, d = 16 + Math.abs(a.x - b.x) * 0.24 + (back ? 7 : 0) + (a.node ? 0 : 10), off = back ? 3 : -3;
    depth = Math.max(depth, d);
    const e = S("path", { class: "link quiet", d: `M${a.x + off} ${a.y}C${a.x + off} ${a.y + d * 1.33} ${b.x + off} ${b.y + d * 1.33} ${b.x + off} ${b.y}` });
    const title = S("title");
    title.textContent = p.from + " → " + p.to;
    e.append(title);
    links.append(e);
    arcs.push({ p, e });
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${nodeY + 76 + depth + 12}`);
  if (s.traces && s.traces.length) N.drawPath(paths, s.traces[0], place, switchY, c.device);
  const legend = N.el("p", { class: "legend" });

  const update = t => {
    const broken = N.brokenAt(c, t);
    for (const b of boxes) {
      if (b.pod) { const here = t >= b.pod.from && (!b.pod.to || t < b.pod.to); b.e.style.opacity = b.label.style.opacity = here ? 1 : 0.25; continue; }
      const runs = N.runsAt(c, b.name, t);
      b.e.setAttribute("class", "box" + (runs === false ? " down" : "") + (broken.some(f => N.isAt(f, b)) ? " hit" : ""));
      b.sub.textContent = runs === false ? (b.role === "node" ? "no agent" : "not running") : b.addr;
    }
    let losing = 0, silent = 0;
    for (const { p, e } of arcs) {
      const loss = N.lossAt(p, t);
      e.setAttribute("class", "link " + (loss === null ? "quiet" : loss === 0 ? "" : loss < 1 ? "part" : "bad"));
      if (loss === null) silent++; else if (loss > 0) { losing++; e.parentNode.append(e); }
    }
    legend.textContent = N.time(t) + ": " + N.plural(arcs.length - losing - silent, "pair") + " answered, " + losing + " losing" + (silent ? ", " + silent + " silent" : "");
  };
  view.onCursor.push(update);
  update(0);
  return N.el("div", {}, svg, legend);
};

// Whether a fault is at a machine: at one of those that it names or, if it names none, at the control plane that it is of.
N.isAt = (fault, machine) => fault.nodes && fault.nodes.length ? fault.nodes.includes(machine.name) : fault.component === machine.role;

// Whether the process of a machine runs at a time; undefined when none was ever started.
N.runsAt = (c, machine, t) => {
  let n, ever = false;
  for (const m of c.marks) {
    if (m.on !== machine || (m.kind !== "start" && m.kind !== "exit")) continue;
    ever = true;
    if (m.t <= t) n = (n || 0) + (m.kind === "start" ? 1 : -1);
  }
  return ever ? (n || 0) > 0 : undefined;
};

// The way of a followed packet, up to the hop at which it died.
N.drawPath = (group, trace, place, switchY, device) => {
  const dead = N.deadHop(trace), at = h => {
    const n = place.get(h.node === "switch" ? h.device : h.node); // a port of the switch has the name of its node
    if (!n) return null;
    if (n.node) return [n.x, n.top + 3]; // a pod
    // From the uplink down: the overlay's device, the bridge, the pod's cable.
    const deep = h.device === "eth0" ? 2 : h.device === device ? 14 : h.device === "cni0" ? 27 : 38;
    return [n.port, h.node === "switch" ? switchY : n.top + deep];
  };
  for (const way of ["request", "reply"]) {
    const points = [], off = way === "request" ? -4 : 4;
    let cut = null, last = null;
    trace.hops.forEach((h, i) => {
      if (h.direction !== way || cut || (dead >= 0 && i > dead)) return;
      const p = at(h);
      if (!p) return;
      points.push([p[0] + off, p[1]]);
      last = p;
      if (i === dead) cut = [p[0] + off, p[1]];
    });
    if (points.length > 1) group.append(N.svg("path", { class: "path " + way, d: "M" + points.map(p => p.join(" ")).join("L") }));
    if (cut) {
      const [x, y] = cut;
      group.append(N.svg("circle", { class: "dead", cx: x, cy: y, r: 7 }), N.svg("path", { class: "deadx", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` }));
    }
  }
};
