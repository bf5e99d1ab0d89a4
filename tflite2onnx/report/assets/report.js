"use strict";
// What is under the pointer, or chosen with the arrow keys, is told beside it.
for (const plot of document.querySelectorAll(".plot")) {
  const points = JSON.parse(document.getElementById(plot.dataset.points).textContent);
  const tip = plot.querySelector(".tip"), cursor = plot.querySelector(".cursor");
  let chosen = -1;

  const line = (text, tag = "span") => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (tag === "span") element.style.display = "block";
    return element;
  };
  const hide = () => { chosen = -1; tip.style.display = cursor.style.display = "none"; };
  const tell = (index) => {
    chosen = Math.max(0, Math.min(points.length - 1, index));
    const point = points[chosen], width = plot.clientWidth, x = point.x * width;
    tip.replaceChildren(line(point.name, "b"), ...point.lines.map((text) => line(text)));
    tip.style.display = cursor.style.display = "block";
    cursor.style.left = `${x}px`;
    const room = x + 14 + tip.offsetWidth <= width;
    const left = room ? x + 14 : Math.max(-20, Math.min(x - 14, width) - tip.offsetWidth);
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(0, plot.clientHeight - tip.offsetHeight - 12)}px`;
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    let best = 0;
    points.forEach((p, i) => {
      if (Math.abs(p.x - part) < Math.abs(points[best].x - part)) best = i;
    });
    tell(best);
  };
  plot.addEventListener("pointermove", nearest);
  plot.addEventListener("pointerdown", nearest);
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    tell(chosen + step);
  });
}
