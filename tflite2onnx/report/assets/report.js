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

// Rows of operators and tensors: search, sort, and details on click or Enter.
const make = (tag, text = "", more = {}) =>
  Object.assign(document.createElement(tag), { textContent: text }, more);
const details = JSON.parse(document.getElementById("details").textContent);
const rows = [...document.querySelectorAll("[data-key]")];
const place = (element) => element.getBoundingClientRect();
const nameOf = (cell) => cell.title || cell.textContent;

const dialog = make("dialog");
document.body.append(dialog);
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
const show = (row) => {
  const key = row.dataset.key, list = make("dl");
  const add = (name, text) => {
    if (text && text !== key) list.append(make("dt", name), make("dd", text));
  };
  const head = row.cells ? [...row.closest("table").tHead.rows[0].cells] : [];
  [...(row.cells || [])].forEach((cell, i) => add(head[i].textContent || "Verdict", nameOf(cell)));
  const folded = row.cells && row.closest("details");
  if (folded) add("Why", folded.querySelector("summary").dataset.words);
  if (!row.cells) {
    add("Node", row.querySelector(".kind").textContent);
    add("Stored", row.querySelector(".shape").textContent.trim());
    add("Attributes in ONNX", row.dataset.attributes);
  }
  Object.entries(details[key] || {}).forEach(([name, text]) => add(name, text));
  const close = make("button", "Close", { onclick: () => dialog.close() });
  dialog.replaceChildren(make("h2", key || "Details"), list, close);
  dialog.showModal();
  dialog.scrollTop = 0;
};

for (const group of new Set(rows.map((row) => row.parentElement))) {
  const choose = (row) => {
    for (const other of group.children) other.tabIndex = other === row ? 0 : -1;
  };
  choose(group.children[0]);
  group.addEventListener("click", (event) => {
    const row = event.target.closest("[data-key]");
    if (event.target.closest("a")) return;
    choose(row);
    show(row);
  });
  group.addEventListener("keydown", (event) => {
    const shown = [...group.children].filter((row) => !row.hidden);
    const at = shown.indexOf(event.target);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 }[event.key];
    if (event.target.closest("a")) return;
    if (event.key === "Enter") show(event.target);
    if (next === undefined) return;
    event.preventDefault();
    if (!shown[next]) return;
    choose(shown[next]);
    shown[next].focus();
  });
}

const valueOf = (cell) => {
  const text = cell.textContent.replace(/,/g, "");
  return text === "equal" ? Infinity : text === "" ? -Infinity : Number.parseFloat(text);
};
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (!body.querySelector("[data-key]")) continue;
  [...table.tHead.rows[0].cells].forEach((head, i) => {
    const button = make("button", head.textContent || "Verdict");
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = head.classList.contains("number")
        ? (a, b) => (valueOf(a.cells[i]) > valueOf(b.cells[i])) - (valueOf(a.cells[i]) < valueOf(b.cells[i]))
        : (a, b) => nameOf(a.cells[i]).localeCompare(nameOf(b.cells[i]));
      body.append(...[...body.rows].sort((a, b) => (down ? compare(b, a) : compare(a, b))));
    });
  });
}

const link = document.getElementById("netron");
if (link) {
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    try {
      await fetch(link.href, { mode: "no-cors" });
      window.open(link.href);
    } catch {
      const words = "Netron does not run yet. This command starts it, and opens the model:";
      const close = make("button", "Close", { onclick: () => dialog.close() });
      const command = make("code", link.dataset.command);
      dialog.replaceChildren(make("h2", "Netron"), make("p", words), make("p"), close);
      dialog.querySelectorAll("p")[1].append(command);
      dialog.showModal();
    }
  });
}

// The drawing of the graph: buttons, keys, and the wheel with Ctrl zoom; dragging moves it.
for (const strip of document.querySelectorAll(".strip")) {
  const drawing = strip.firstElementChild, percent = make("span");
  percent.setAttribute("role", "status");
  let scale = 1, held = null;
  // The point of the drawing at (x, y) in the strip stays there.
  const zoom = (wanted, x = 0, y = strip.clientHeight / 2) => {
    const factor = Math.min(4, Math.max(0.05, wanted)) / scale;
    const left = (strip.scrollLeft + x) * factor - x, top = (strip.scrollTop + y) * factor - y;
    scale *= factor;
    drawing.style.zoom = scale;
    strip.scrollTo(left, top);
    percent.textContent = `${Math.round(100 * scale)} %`;
  };
  const fit = () => zoom(scale * Math.min(
    strip.clientWidth / drawing.scrollWidth, strip.clientHeight / place(drawing).height));
  const actions = new Map([
    ["-", ["\u2212", "Smaller", () => zoom(scale / 1.25)]],
    ["+", ["+", "Larger", () => zoom(scale * 1.25)]],
    ["0", ["100 %", "The size of the text", () => zoom(1)]],
    ["f", ["Fit", "The whole graph", fit]],
  ]);
  const bar = make("div", "", { className: "zoom" });
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Zoom of the graph");
  for (const [key, [text, words, onclick]] of actions) {
    bar.append(make("button", text, { title: `${words}  ( ${key} )`, onclick }));
  }
  bar.append(percent, make("span", "drag to move"));
  strip.before(bar);
  zoom(1);
  strip.addEventListener("keydown", (event) => {
    const action = actions.get(event.key === "=" ? "+" : event.key);
    if (!action || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    action[2]();
  });
  strip.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const box = place(strip);
    zoom(scale * 1.002 ** -event.deltaY, event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  strip.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button || event.target === strip) return;
    held = { x: event.clientX, y: event.clientY, left: strip.scrollLeft, top: strip.scrollTop };
  });
  document.addEventListener("pointermove", (event) => {
    if (!held) return;
    const x = event.clientX - held.x, y = event.clientY - held.y;
    held.moved = held.moved || Math.hypot(x, y) > 4;
    if (held.moved) strip.scrollTo(held.left - x, held.top - y);
  });
  document.addEventListener("pointerup", () => { setTimeout(() => { held = null; }); });
  // The end of a movement is no click on a node.
  strip.addEventListener("click", (event) => {
    if (held && held.moved) event.stopPropagation();
  }, { capture: true });
}

if (rows.length) {
  const label = make("label", "Search ", { className: "search" });
  const field = make("input", "", { type: "search", placeholder: "words of a row  ( / )" });
  const found = make("span");
  found.setAttribute("role", "status");
  label.append(field, found);
  document.querySelector("header").after(label);
  const texts = rows.map((row) => [row, ...row.children].map(nameOf).join(" ").toLowerCase());
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = rows.filter((row, i) => {
      const hit = words.every((word) => texts[i].includes(word));
      if (row.cells) row.hidden = !hit;
      else row.classList.toggle("missed", !hit);
      return hit;
    });
    for (const folded of document.querySelectorAll("details")) {
      folded.open = words.length > 0 && hits.some((row) => folded.contains(row));
    }
    const node = hits.find((row) => !row.cells);
    const strip = node && node.closest(".strip");
    if (strip && !words.length) strip.scrollTop = 0;
    else if (strip) strip.scrollTop += place(node).top - place(strip).top - 44;
    found.textContent = words.length ? ` ${hits.length} of ${rows.length} rows` : "";
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === field || dialog.open) return;
    event.preventDefault();
    field.focus();
  });
}
