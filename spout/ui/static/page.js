// The stream of this page, which replaces what it shows; the cursor of a partition's band; and sliders.
"use strict";
const connection = document.getElementById("connection");
const live = document.getElementById("main");
const RETRY_MS = 1000, SILENT_MS = 20000;
let stream = null, retry = 0, silent = 0;

function say(text, isLive) {
  connection.classList.toggle("live", Boolean(isLive));
  if (connection.textContent !== text) connection.textContent = text;
}

function close() {
  clearTimeout(retry);
  clearTimeout(silent);
  if (stream) stream.close();
  stream = null;
}

function reopen() {
  close();
  say("connection lost: trying again");
  retry = setTimeout(open, RETRY_MS);
}

function open() {
  close();
  stream = new EventSource(location.href);
  stream.addEventListener("show", (event) => {
    // what a reader has opened or typed stays
    Idiomorph.morph(live, event.data, { morphStyle: "innerHTML", callbacks: {
      beforeNodeMorphed: (node) => node.tagName !== "FORM",
      beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
    } });
    point();
    sliders();
    say("live", true);
    clearTimeout(silent);
    silent = setTimeout(reopen, SILENT_MS);
  });
  stream.onerror = reopen;
}

function follow() {
  if (live.hasAttribute("data-still")) return say("not live");
  if (document.hidden) {
    close();
    say("paused while hidden");
  } else open();
}
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", close);
addEventListener("pageshow", follow);

// The cursor stands on an offset, not on a run: runs come and go.
let at = null;

function runs() {
  return [...document.querySelectorAll("#runs tr[data-first]")];
}

function current(rows) {
  return rows.findLast((row) => Number(row.dataset.first) <= at) ?? rows[0];
}

function point() {
  const cursor = document.getElementById("cursor"), rows = runs();
  if (!cursor || at === null || !rows.length) return;
  const row = current(rows), text = row.cells[0].textContent;
  cursor.setAttribute("aria-valuenow", row.dataset.first);
  cursor.setAttribute("aria-valuetext", text);
  const link = document.createElement("a");
  link.href = `/record/${row.dataset.place}`;
  link.textContent = row.dataset.place;
  document.getElementById("pointed").replaceChildren(`${text}; `, link);
}

function move(row) {
  if (!row) return;
  at = Number(row.dataset.first);
  point();
}

document.addEventListener("keydown", (event) => {
  if (event.target.id !== "cursor") return;
  const rows = runs(), here = at === null ? -1 : rows.indexOf(current(rows));
  const next = { ArrowRight: here + 1, ArrowLeft: Math.max(0, here - 1), Home: 0, End: rows.length - 1 }[event.key];
  if (next !== undefined) {
    event.preventDefault();
    move(rows[next]);
  } else if (event.key === "Enter" && here >= 0) location.href = `/record/${rows[here].dataset.place}`;
});

document.addEventListener("pointermove", (event) => {
  const cursor = event.target.closest?.("#cursor");
  if (!cursor) return;
  const box = cursor.getBoundingClientRect();
  const cell = (event.clientX - box.left) / box.width * Number(cursor.dataset.cells);
  move(runs().find((row) => cell < Number(row.dataset.cellEnd)));
});

// A slider says what its table has in the row that it points to. It starts at the row of its own timeout.
function slide(slider) {
  const rows = [...document.querySelectorAll(`#${CSS.escape(slider.dataset.of)} tr[data-ms]`)];
  if (!rows.length) return;
  if (!slider.dataset.moved) {
    const own = Number(slider.dataset.ms);
    const at = rows.findIndex((row) => Number(row.dataset.ms) >= own);
    slider.value = at < 0 ? rows.length - 1 : at;
  }
  slider.max = rows.length - 1;
  const [timeout, share] = rows[slider.valueAsNumber].cells;
  const of = share.querySelector(".unknown") ? "it is unknown how many" : share.textContent;
  const text = `With a timeout of ${timeout.textContent}, ${of} would have timed out.`;
  slider.setAttribute("aria-valuetext", text);
  slider.form.querySelector("output").textContent = text;
  slider.form.hidden = false;
}

function sliders() {
  document.querySelectorAll("input[data-of]").forEach(slide);
}

document.addEventListener("input", (event) => {
  if (!event.target.dataset.of) return;
  event.target.dataset.moved = "yes";
  slide(event.target);
});
sliders();
