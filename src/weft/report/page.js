"use strict";

const figures = JSON.parse(document.getElementById("figures").textContent);
const drawn = new Set();
const config = {
  displaylogo: false,
  responsive: true,
  modeBarButtons: [["toImage", "resetScale2d"]],
};

function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The figures say what is shown; light or dark is the reader's choice and set here.
function themed(layout) {
  const [page, ink, quiet, line] = ["--page", "--ink", "--quiet", "--line"].map(token);
  const whole = {
    margin: { l: 76, r: 12, t: 32, b: 44 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    ...structuredClone(layout),
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: page, bordercolor: line, font: { color: ink }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: quiet, activecolor: ink },
  };
  for (const [key, axis] of Object.entries(whole)) {
    if (!/^[xy]axis/.test(key)) continue;
    Object.assign(axis, { gridcolor: line, zerolinecolor: line, linecolor: line });
    Object.assign(axis, { tickfont: { color: quiet }, automargin: true });
    if (axis.title) Object.assign(axis.title, { font: { size: 12, color: quiet }, standoff: 10 });
  }
  for (const shape of whole.shapes ?? []) shape.line.color = shape.layer ? line : quiet;
  return whole;
}

function draw(id) {
  drawn.add(id);
  Plotly.react(id, figures[id].data, themed(figures[id].layout), config);
}

function show(button) {
  for (const other of button.parentElement.children) {
    const chosen = other === button;
    other.setAttribute("aria-pressed", String(chosen));
    document.getElementById(other.dataset.plot).hidden = !chosen;
  }
  draw(button.dataset.plot);
}

for (const button of document.querySelectorAll(".tabs button")) {
  button.addEventListener("click", () => show(button));
}
for (const id of Object.keys(figures)) {
  if (!document.getElementById(id).hidden) draw(id);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
