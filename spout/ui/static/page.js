// What no library does: a hidden tab has no stream, whether the stream lives, the cursor of a band, and sliders.
"use strict";
const connection = document.getElementById("connection");
const live = document.getElementById("main");
const SILENT_MS = 20000, AGAIN_MS = 1000;
let stream, next;

function say(text) {
  connection.classList.toggle("live", text === "live");
  if (connection.textContent !== text) connection.textContent = text;
}

function lost() {
  say("connection lost: trying again");
}

function followIn(ms) {
  clearTimeout(next);
  next = setTimeout(() => {
    lost();
    follow();
  }, ms);
}

// What is disabled has no stream, and what is enabled again has a new one.
function follow() {
  for (const isOff of [true, document.hidden]) {
    live.toggleAttribute("hx-disable", isOff);
    htmx.process(live);
  }
  clearTimeout(next);
  if (document.hidden) say("paused while hidden");
  else followIn(SILENT_MS);
}

// One stream a tab.
htmx.createEventSource = (address) => {
  stream?.close();
  stream = new EventSource(address);
  if (document.hidden) stream.close();
  return stream;
};

// What a reader has opened or typed stays, and what is drawn.
Object.assign(Idiomorph.defaults.callbacks, {
  beforeNodeMorphed: (node) => !node.matches?.("form, .plot"),
  beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
});
// The browser itself opens a stream again that broke, but none that was refused. The extension would, after twice
// as long each time, up to a minute: so for the extension this one is not closed.
live.addEventListener("htmx:sseError", (event) => {
  const source = event.detail.source;
  lost();
  if (source.readyState !== EventSource.CLOSED) return;
  Object.defineProperty(source, "readyState", { value: EventSource.CONNECTING });
  followIn(AGAIN_MS);
});
live.addEventListener("htmx:sseMessage", () => {
  point();
  sliders();
  say("live");
  followIn(SILENT_MS);
});
if (live.hasAttribute("data-still")) say("not live");
else {
  live.toggleAttribute("hx-disable", document.hidden); // htmx has not begun yet
  if (!document.hidden) followIn(SILENT_MS);
  document.addEventListener("visibilitychange", follow);
}

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

// A slider says what its table has in the row that it points to.
function slide(slider) {
  const rows = [...document.querySelectorAll(`#${CSS.escape(slider.dataset.of)} tr[data-ms]`)];
  if (!rows.length) return;
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
  if (event.target.dataset.of) slide(event.target);
});
sliders();
