// Steps, and the output of agents and etcd beside the time: the line at the cursor is marked, and a click on a line moves the cursor.
N.steps = (view, c, s) => {
  if (!c.steps.length) return "";
  return N.el("div", {}, N.el("h2", { text: "Steps" }), N.el("ol", { class: "steps" }, c.steps.map((st, i) =>
    N.el("li", { class: st.of && st.of !== s.name ? "before" : "", title: st.of && st.of !== s.name ? "in: " + st.of : "" },
      N.el("span", { class: "t", text: N.time(st.t) }), N.el("span", { text: (i + 1) + ". " + st.text })))));
};

// A line as a person reads it: its time stands beside it already, and etcd's JSON becomes words. The level is the line's
// own or, where it has none, guessed from its words.
N.logLine = line => {
  let text = line.replace(/^time=\S+ /, ""), level = (/\blevel=(\w+)/.exec(text) || [])[1];
  if (line.startsWith("{")) {
    try {
      const { level: own, ts, caller, msg, stacktrace, ...rest } = JSON.parse(line);
      if (msg !== undefined) {
        level = own;
        text = [own, msg, ...Object.entries(rest).map(([k, v]) => k + "=" + (typeof v === "string" ? v : JSON.stringify(v)))].filter(Boolean).join(" ");
      }
    } catch { /* it only looks like JSON */ }
  }
  return { text, level: level || (/\b(error|fatal|panic|failed)\b/i.exec(text) ? "error" : /\bwarn(ing)?\b/i.test(text) ? "warn" : "info") };
};

N.logs = (view, c) => {
  const E = N.el, machines = [...new Set(c.logs.map(l => l.m))].sort();
  if (!machines.length) return "";
  const box = E("div", { class: "log", tabindex: 0, role: "log", "aria-live": "off", "aria-label": "Output of agents and etcd" });
  const follow = E("input", { type: "checkbox", checked: true });
  const machine = E("select", { "aria-label": "Machine" }, E("option", { value: "", text: "all machines" }), machines.map(m => E("option", { value: m, text: m })));
  const search = E("input", { type: "search", placeholder: "Search", "aria-label": "Search the output", size: 14 });
  let lines = [], marked = null;
  const show = () => {
    const word = search.value.toLowerCase();
    lines = c.logs.filter(l => (!machine.value || l.m === machine.value) && (!word || l.x.toLowerCase().includes(word))).map(l => {
      const { level, text } = N.logLine(l.x), bad = /^(err|fatal|panic)/i.test(level), warn = /^warn/i.test(level);
      return [l.t, E("div", { class: bad ? "e" : warn ? "y" : "", onclick: () => view.setCursor(l.t, "log") },
        E("span", { class: "t", text: N.time(l.t) }), E("span", { class: "w", text: l.m === l.p ? l.m : l.m + " " + l.p }), E("span", { class: "x", text }))];
    });
    box.classList.toggle("many", lines.length > 2000);
    box.replaceChildren(...lines.map(l => l[1]));
    if (!lines.length) box.append(E("p", { class: "muted", text: "No line." }));
    mark(view.t, "show");
  };
  const mark = (t, from) => {
    let lo = 0, hi = lines.length;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (lines[mid][0] <= t) lo = mid + 1; else hi = mid; }
    const e = lo ? lines[lo - 1][1] : null;
    if (marked) marked.classList.remove("at");
    marked = e;
    if (!e) return;
    e.classList.add("at");
    if (!follow.checked || from === "log") return;
    const scroll = () => { box.scrollTop = e.offsetTop - box.clientHeight / 2; };
    scroll();
    requestAnimationFrame(scroll); // lines that were not drawn before have their height now
  };
  search.addEventListener("input", show);
  machine.addEventListener("change", show);
  view.onCursor.push(mark);
  show();
  return E("div", {}, E("h2", {}, "Output", E("small", { text: N.plural(c.logs.length, "line") + (c.dropped ? "; " + N.count(c.dropped) + " earlier ones are in record.jsonl" : "") })),
    E("div", { class: "bar" }, machine, search, E("label", {}, follow, " follow the cursor")), box);
};
