"use strict";
// Asks the server for the parts of the page, and replaces those that have changed. A page in the
// background asks too, less often, so that its title tells of problems.
const every = 2000, behind = 15000;
const shown = {};
const icons = ["data:,", "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'><circle cx='4' cy='4' r='4' fill='%23c22'/></svg>"];
let figures = document.getElementById("figures").dataset.key;
let timer = 0;
const kind = document.getElementById("kind");
function local() {
  for (const one of document.querySelectorAll("time[data-at]")) {
    const when = new Date(1000 * Number(one.dataset.at));
    if (one.closest(".events")) one.textContent = when.toLocaleString();
    one.title = when.toLocaleString() + " (" + when.toISOString().slice(0, 19) + "Z)";
  }
}
async function update() {
  clearTimeout(timer);
  const stale = document.getElementById("stale");
  try {
    const asked = new URLSearchParams({figures: figures, kind: kind.value});
    const answer = await fetch("live?" + asked, {cache: "no-store"});
    if (answer.status === 401) { location.assign("sign-in"); return; }
    if (!answer.ok) throw new Error("status " + answer.status);
    const told = await answer.json();
    for (const [name, html] of Object.entries(told.parts)) {
      if (shown[name] !== html) {
        document.getElementById(name).innerHTML = html;
        shown[name] = html;
      }
    }
    figures = told.figures;
    document.title = told.title;
    document.querySelector("link[rel=icon]").href = icons[told.title.startsWith("(") ? 1 : 0];
    stale.hidden = true;
    local();
  } catch (error) {
    stale.hidden = false;
    document.title = "(!) " + document.title.replace(/^\([^)]*\) /, "");
  }
  timer = setTimeout(update, document.hidden ? behind : every);
}
kind.addEventListener("change", update);
document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
local();
timer = setTimeout(update, every);
