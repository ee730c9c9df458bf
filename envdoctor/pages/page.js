"use strict";
// Values of the curves under the pointer or, with the arrow keys, at the next step. A line marks the step in all charts.

const SVG = "http://www.w3.org/2000/svg";

function numbers(text) {
  return text ? text.split(" ").map(Number) : [];
}

function nearest(steps, step) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle; else high = middle;
  }
  return Math.abs(steps[high] - step) < Math.abs(steps[low] - step) ? high : low;
}

function readChart(svg) {
  const [left, right, top, bottom] = numbers(svg.dataset.area);
  const [first, last] = numbers(svg.dataset.steps);
  const curves = [...svg.querySelectorAll(".series")].map((shape) => ({
    name: shape.dataset.name,
    colour: shape.dataset.colour,
    steps: numbers(shape.dataset.x),
    texts: shape.dataset.y.split(" "),
  })).filter((curve) => curve.steps.length);
  const longest = curves.reduce((a, b) => (b.steps.length > a.steps.length ? b : a), { steps: [] });
  return { svg, left, right, top, bottom, first, last, curves, steps: longest.steps };
}

function mark(chart, step) {
  let cursor = chart.svg.querySelector(".cursor");
  if (step === null || step < chart.first || step > chart.last) {
    cursor?.remove();
    return;
  }
  if (!cursor) {
    cursor = document.createElementNS(SVG, "path");
    cursor.setAttribute("class", "cursor");
    chart.svg.append(cursor);
  }
  const x = chart.left + (chart.right - chart.left) * (step - chart.first) / (chart.last - chart.first);
  cursor.setAttribute("d", `M${x.toFixed(1)} ${chart.top}V${chart.bottom}`);
}

function line(text, colour) {
  const element = document.createElement("p");
  if (colour !== undefined) {
    const key = document.createElement("span");
    key.className = `c${colour % 8}`;
    key.textContent = "\u25cf ";
    element.append(key);
  }
  element.append(text);
  return element;
}

function showTip(chart, step) {
  const figure = chart.svg.parentElement;
  let tip = figure.querySelector(".tip");
  if (!tip) {
    tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("role", "status");
    figure.append(tip);
  }
  const reach = Math.max(1, (chart.last - chart.first) / 50);
  const lines = [line(`step ${step}`)];
  for (const curve of chart.curves) {
    const at = nearest(curve.steps, step), found = curve.steps[at];
    if (Math.abs(found - step) <= reach) {
      lines.push(line(`${curve.name} ${curve.texts[at]}${found === step ? "" : ` (step ${found})`}`, curve.colour));
    }
  }
  tip.replaceChildren(...lines);
  const isRight = step > (chart.first + chart.last) / 2;
  const scale = chart.svg.clientWidth / chart.svg.viewBox.baseVal.width;
  const x = chart.left + (chart.right - chart.left) * (step - chart.first) / (chart.last - chart.first);
  const offset = chart.svg.getBoundingClientRect().left - figure.getBoundingClientRect().left;
  tip.style.top = "2.2rem";
  tip.style.left = isRight ? "auto" : `${offset + x * scale + 10}px`;
  tip.style.right = isRight ? `${figure.clientWidth - offset - x * scale + 10}px` : "auto";
}

for (const group of document.querySelectorAll(".charts")) {
  const all = [...group.querySelectorAll("svg")].map(readChart);
  const hide = () => {
    all.forEach((chart) => mark(chart, null));
    group.querySelectorAll(".tip").forEach((tip) => tip.remove());
  };
  for (const chart of all) {
    if (!chart.steps.length) continue;
    let at = -1;
    const show = (index) => {
      at = Math.max(0, Math.min(chart.steps.length - 1, index));
      hide();
      all.forEach((other) => mark(other, chart.steps[at]));
      showTip(chart, chart.steps[at]);
    };
    chart.svg.addEventListener("pointermove", (event) => {
      const box = chart.svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * chart.svg.viewBox.baseVal.width / box.width;
      const step = chart.first + (x - chart.left) / (chart.right - chart.left) * (chart.last - chart.first);
      show(nearest(chart.steps, step));
    });
    chart.svg.addEventListener("pointerleave", hide);
    chart.svg.addEventListener("blur", hide);
    chart.svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: chart.steps.length - 1 };
      if (event.key === "Escape") hide();
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(moves[event.key]);
    });
  }
  const keys = group.previousElementSibling.querySelectorAll("[data-colour]");
  for (const key of new Set([...keys].map((key) => key.dataset.colour)).size > 1 ? keys : []) {
    const fade = (on) => group.querySelectorAll(".series").forEach((shape) => {
      shape.classList.toggle("faded", on && shape.dataset.colour !== key.dataset.colour);
    });
    key.addEventListener("pointerenter", () => fade(true));
    key.addEventListener("pointerleave", () => fade(false));
  }
}

for (const block of document.querySelectorAll("pre.command")) {
  const frame = document.createElement("div"), button = document.createElement("button");
  frame.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  block.replaceWith(frame);
  frame.append(block, button);
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(block);
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Selected";  // the browser permits no access to the clipboard
    }
  });
}

const closed = new Set();
addEventListener("beforeprint", () => {
  for (const section of document.querySelectorAll("details:not([open])")) {
    closed.add(section);
    section.open = true;
  }
});
addEventListener("afterprint", () => {
  closed.forEach((section) => { section.open = false; });
  closed.clear();
});
