// Which scenario is open stands in the address, so that a link leads to it.
(() => {
  const list = N.list(), article = document.getElementById("scenario"), listed = document.getElementById("list");
  const title = document.title;
  let open = null, from = null;
  const around = id => {
    const ids = list.visible().map(r => +r.dataset.id), i = ids.indexOf(id);
    return { before: i > 0 ? ids[i - 1] : null, after: i >= 0 && i + 1 < ids.length ? ids[i + 1] : null };
  };
  const route = () => {
    if (open) { open.stop(); open = null; }
    const m = /^#s(\d+)$/.exec(location.hash), id = m && +m[1];
    const there = m && document.getElementById("s" + id);
    listed.hidden = !!there;
    article.hidden = !there;
    article.replaceChildren();
    document.title = title;
    if (!there) {
      if (from !== null) document.querySelector("#r" + from + " a").focus();
      from = null;
      return;
    }
    from = id;
    open = N.scenario(id, around(id));
    document.title = article.querySelector("h1").textContent + " · nemesh";
    open.start();
    scrollTo(0, 0);
    article.focus({ preventScroll: true });
  };
  addEventListener("hashchange", route);
  addEventListener("keydown", e => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
    if (e.key === "Escape" && typing) { e.target.blur(); return; }
    if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "/" && !listed.hidden) { e.preventDefault(); list.search.focus(); }
    if (e.key === "Escape" && open) location.hash = "";
    if ((e.key === "[" || e.key === "]") && open) {
      const to = around(from)[e.key === "[" ? "before" : "after"];
      if (to !== null) location.hash = "s" + to;
    }
  });
  const root = document.documentElement, theme = document.getElementById("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { theme.textContent = dark() ? "light" : "dark"; theme.setAttribute("aria-label", "Change to " + theme.textContent); if (open) open.redraw(); };
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("nemesh-theme", root.dataset.theme); } catch { /* a file may keep nothing */ }
    name();
  });
  try { const kept = localStorage.getItem("nemesh-theme"); if (kept) root.dataset.theme = kept; } catch { /* as above */ }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
  route();
})();
