"use strict";
// Small helpers. All text goes in as text nodes: nothing that a record holds is ever read as HTML.
const N = {};

N.el = (tag, attrs, ...children) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "text") e.textContent = v;
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children.flat().filter(c => c !== null && c !== undefined && c !== false));
  return e;
};

N.svg = (tag, attrs, ...children) => {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attrs || {})) if (v !== undefined && v !== null) e.setAttribute(k, v);
  e.append(...children.flat().filter(c => c !== null && c !== undefined));
  return e;
};

N.json = id => JSON.parse(document.getElementById(id).textContent);
N.css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
N.time = ms => (ms / 1000).toFixed(ms < 100000 ? 2 : 1) + " s";
N.span = ms => ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(2) + " s";
N.rtt = us => us < 1000 ? us + " µs" : (us / 1000).toFixed(us < 10000 ? 2 : 1) + " ms";
N.count = n => String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
N.plural = (n, word) => n + " " + word + (n === 1 ? "" : "s");

// A view joins the parts of an open scenario: the time under the cursor and the range that is shown.
N.View = class {
  constructor(length) {
    this.length = Math.max(length, 1);
    this.range = [0, this.length];
    this.t = 0;
    this.onCursor = [];
    this.onRange = [];
    this.pending = false;
    this.from = null;
  }

  setCursor(t, from) {
    this.t = Math.min(Math.max(t, 0), this.length);
    this.from = from;
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      for (const f of this.onCursor) f(this.t, this.from);
    });
  }

  setRange(a, b) {
    const least = Math.min(20, this.length);
    if (b - a < least) { const mid = (a + b) / 2; a = mid - least / 2; b = mid + least / 2; }
    if (a < 0) { b -= a; a = 0; }
    if (b > this.length) { a = Math.max(0, a - (b - this.length)); b = this.length; }
    this.range = [a, b];
    for (const f of this.onRange) f(a, b);
  }

  zoom(factor) {
    const [a, b] = this.range, at = this.t >= a && this.t <= b ? this.t : (a + b) / 2;
    this.setRange(at - (at - a) * factor, at + (b - at) * factor);
  }
};

// The bucket of a pair that holds a time: its index, or -1.
N.bucketAt = (pair, t) => {
  const at = pair.b[0];
  let lo = 0, hi = at.length - 1;
  while (lo <= hi) {
    const mid = (lo + hi) >> 1;
    if (at[mid] <= t) lo = mid + 1; else hi = mid - 1;
  }
  return hi >= 0 && t < at[hi] + pair.b[1][hi] ? hi : -1;
};

// How much of a pair is lost at a time: 0 to 1, or null when nothing was sent.
N.lossAt = (pair, t) => {
  const i = N.bucketAt(pair, t);
  return i < 0 || !pair.b[2][i] ? null : pair.b[3][i] / pair.b[2][i];
};

N.brokenAt = (cluster, t) => cluster.faults.filter(f => f.once
  ? t >= f.from && t <= (f.proved || f.from) + 200
  : t >= f.from && t <= (f.to || cluster.length));
