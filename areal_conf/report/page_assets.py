"""Style and script of the pages. The script only marks and orders what is on the page already."""

from __future__ import annotations

from areal_conf.report.colours import IN_TURN, PARTS

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

_RULES = "".join(f".e{n}{{background:{fill}}}" for n, fill in enumerate(IN_TURN)) + "".join(
    f".bar .m{n}{{background:{fill}}}" for n, fill in enumerate(PARTS)
)

STYLE = (
    """
:root{color-scheme:light dark;--paper:#fff;--ink:#1a1a1a;--soft:#5a5f66;--line:#c8ccd1;
--box:#f3f5f7;--bad:#a40000;--warn:#8a5300}
@media (prefers-color-scheme:dark){:root{--paper:#15181c;--ink:#e8eaed;--soft:#a5abb3;
--line:#3c424a;--box:#1f242a;--bad:#ff8a80;--warn:#ffc46b}}
*{box-sizing:border-box}
body{font:15px/1.45 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;margin:0 auto;
padding:20px;max-width:1400px;background:var(--paper);color:var(--ink)}
h1{font-size:24px;margin:0 0 14px}h2{font-size:14px;margin:0 0 6px}
code{font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:13px}
.finding{border-left:4px solid var(--warn);padding:4px 10px;margin:8px 0;overflow-wrap:anywhere}
.finding.error{border-color:var(--bad)}.finding span{color:var(--soft)}
.wide{overflow-x:auto;margin:14px 0}
table{border-collapse:collapse}td,th{border-bottom:1px solid var(--line);padding:6px 10px;
text-align:left;vertical-align:top}td code{white-space:nowrap}
th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible{outline:2px solid}
th[aria-sort=ascending] button::after{content:" \\25B2"}
th[aria-sort=descending] button::after{content:" \\25BC"}
.number{text-align:right;font-variant-numeric:tabular-nums}
.bar{display:flex;width:260px;height:14px;background:var(--box);border:1px solid var(--line)}
.bar i{display:block;height:100%}td small{color:var(--soft);display:block;max-width:300px}
.nodes{display:flex;flex-wrap:wrap;gap:14px}
.node{background:var(--box);border:1px solid var(--line);border-radius:4px;padding:10px}
.gpus{display:grid;grid-template-columns:repeat(auto-fill,minmax(92px,1fr));gap:4px;
width:min(404px,calc(100vw - 64px))}
.gpu{border:1px solid var(--line);border-radius:3px;padding:2px;min-height:44px;
background:var(--paper);font-size:12px}
.gpu .id{color:var(--soft);font-size:10px}.gpu em{color:var(--soft)}
.rank{display:block;color:#111;padding:2px 4px;border-radius:2px;margin-top:2px;cursor:default;
overflow:hidden;position:relative;border:2px solid transparent;white-space:nowrap}
.rank small{font-size:10.5px;display:block}
.rank u{position:absolute;left:0;bottom:0;height:3px;background:#1a1a1a}
.rank u.v-no{background:#a40000}.rank u.v-may{background:#8a5300}
#legend{margin:14px 0;color:var(--soft)}#legend span{padding:1px 7px;border:2px solid;
border-radius:3px;color:var(--ink)}
.lit .rank{opacity:.35}.lit .rank.on{opacity:1}
.rank.self{border-color:#111;opacity:1!important}
.g-d{border-color:#004488!important}.g-t{border-color:#bb5566!important}
.g-c{border-color:#117733!important}.g-p{border-color:#997700!important}
.g-e{outline:2px dashed #882255;outline-offset:-5px}
.note{color:var(--soft);margin:4px 0}
@media (max-width:600px){body{padding:12px}.bar{width:180px}}
"""
    + _RULES
)

SCRIPT = """
"use strict";
const ranks = [...document.querySelectorAll(".rank")];
const dense = ["d", "p", "c", "t"], expert = ["x", "e", "y", "p"];
const differs = (a, b, keys) => keys.filter(k => a.dataset[k] !== b.dataset[k]);
function light(self) {
  document.body.classList.add("lit");
  for (const other of ranks) {
    other.classList.remove("on", "self", "g-d", "g-p", "g-c", "g-t", "g-e");
    if (other === self) { other.classList.add("on", "self"); continue; }
    if (other.dataset.n !== self.dataset.n) continue;
    const by = differs(self, other, dense);
    if (by.length === 1) other.classList.add("on", "g-" + by[0]);
    const apart = differs(self, other, expert);
    if (apart.length === 1 && apart[0] === "e") other.classList.add("on", "g-e");
  }
}
function dark() {
  document.body.classList.remove("lit");
  for (const one of ranks) one.classList.remove("on", "self", "g-d", "g-p", "g-c", "g-t", "g-e");
}
for (const one of ranks) {
  one.addEventListener("pointerenter", () => light(one));
  one.addEventListener("focus", () => light(one));
  one.addEventListener("pointerleave", dark);
  one.addEventListener("blur", dark);
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const number = head.classList.contains("number"), body = table.tBodies[0];
    const key = row => {
      const cell = row.cells[column];
      if (!number) return cell.textContent;
      return cell.dataset.key === "" ? Infinity : Number(cell.dataset.key);
    };
    const compare = (a, b) => number ? a - b : a.localeCompare(b, "en", {numeric: true});
    const rows = [...body.rows].map(row => [key(row), row]);
    rows.sort((a, b) => (up ? 1 : -1) * (a[0] === b[0] ? 0 : compare(a[0], b[0])));
    for (const [, row] of rows) body.append(row);
  }));
}
"""
