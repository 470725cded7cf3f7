"use strict";
// Asks the server for the parts of the page, and replaces those that have changed.
const every = 2000;
const shown = {};
let figures = document.getElementById("figures").dataset.key;
async function update() {
  const stale = document.getElementById("stale");
  if (!document.hidden) {
    try {
      const answer = await fetch("live?figures=" + encodeURIComponent(figures), {cache: "no-store"});
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
      stale.hidden = true;
    } catch (error) {
      stale.hidden = false;
    }
  }
  setTimeout(update, every);
}
setTimeout(update, every);
