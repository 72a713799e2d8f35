// The time chart: uPlot draws it, with a gap where nobody knows.
"use strict";
const CHART_HEIGHT = 160;
// colour, and a second sign: as the border of a mark, and as lengths on the canvas
const LINES = [
  { label: "acked", color: "--open", border: "solid", dash: [] },
  { label: "failed", color: "--bad", border: "dashed", dash: [9, 4] },
  { label: "timed out", color: "--waiting", border: "dotted", dash: [3, 3] },
];
const plots = new WeakMap();

function ink(name) {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name);
}

function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19);
}

// Returns the value of a line under the pointer, or else the newest; undefined while there is none.
function shown(plot, number, at) {
  return plot.data[number][at ?? plot.data[0].length - 1];
}

function newPlot(place, columns) {
  const line = { stroke: ink("--line"), width: 1 };
  const axis = { stroke: ink("--soft"), grid: line, ticks: line, size: 60 };
  return new uPlot({
    width: place.clientWidth,
    height: CHART_HEIGHT,
    cursor: { y: false, drag: { x: false } },
    legend: { markers: {
      width: 3,
      fill: () => "transparent",
      stroke: (_, number) => `var(${LINES[number - 1].color})`,
      dash: (_, number) => LINES[number - 1].border,
    } },
    scales: { y: { range: (_, low, high) => uPlot.rangeNum(0, Math.max(1, high), 0.1, true) } },
    axes: [{ ...axis, size: 30, values: (_, times) => times.map((at) => clock(at).slice(0, 5)) }, axis],
    series: [
      { label: "from", value: (plot, _, number, at) => {
        const seconds = shown(plot, number, at);
        return seconds === undefined ? "" : `${clock(seconds)}Z`;
      } },
      ...LINES.map(({ label, color, dash }) => ({
        label, dash, stroke: ink(color), width: 2,
        value: (plot, _, number, at) => shown(plot, number, at)?.toFixed(1) ?? "unknown",
      })),
    ],
  }, columns, place);
}

function draw(chart) {
  const place = chart.firstElementChild, text = chart.dataset.columns, drawn = plots.get(place);
  if (!drawn) return plots.set(place, { text, plot: newPlot(place, JSON.parse(text)) });
  if (drawn.plot.width !== place.clientWidth) drawn.plot.setSize({ width: place.clientWidth, height: CHART_HEIGHT });
  if (drawn.text !== text) drawn.plot.setData(JSON.parse(drawn.text = text));
}

function charts() {
  document.querySelectorAll(".chart").forEach(draw);
}

live.addEventListener("htmx:sseMessage", charts);
addEventListener("resize", charts);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelectorAll(".plot").forEach((place) => plots.get(place)?.plot.redraw());
});
charts();
