// A table of many rows gets a field that filters its rows, and headings that sort them.
const FEWEST_ROWS = 20;

function readCell(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = parseFloat(text.replaceAll(",", ""));
  return /^-?[\d.]/.test(text) && !isNaN(number) ? number : text.toLowerCase();
}

function compareCells(a, b) {
  if (a === "" || b === "") return (a === "") - (b === ""); // empty cells are last
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function splitWords(text) {
  return text.toLowerCase().split(/[^\p{L}\p{N}.]+/u).filter(Boolean);
}

function sortRows(table, heading, column) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const cells = [...table.tBodies[0].rows].map((row) => [readCell(row, column), row]);
  cells.sort(([a], [b]) => (down && a !== "" && b !== "" ? compareCells(b, a) : compareCells(a, b)));
  table.tBodies[0].append(...cells.map(([, row]) => row));
}

function addFilter(table) {
  const rows = [...table.tBodies[0].rows];
  const texts = new Map(rows.map((row) => [row, splitWords(row.innerText)]));
  const bar = document.createElement("p"), field = document.createElement("input");
  const count = document.createElement("span");
  bar.className = "filter";
  field.type = "search";
  field.placeholder = "Filter the rows by words";
  field.setAttribute("aria-label", field.placeholder);
  count.setAttribute("role", "status");
  const filterRows = () => {
    const wanted = splitWords(field.value);
    for (const [row, words] of texts) {
      row.hidden = !wanted.every((part) => words.some((word) => word.startsWith(part)));
    }
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  field.addEventListener("input", filterRows);
  filterRows();
  bar.append(field, count);
  table.before(bar);
}

function addButton(table, heading, column) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  button.addEventListener("click", () => sortRows(table, heading, column));
  heading.append(button);
}

// Names of the first column, and of links, break after an underscore, a slash or an @, not in mid-word.
function allowBreaks(cell) {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    const [first, ...rest] = node.data.split(/(?<=[_/@])/);
    node.replaceWith(first, ...rest.flatMap((part) => [document.createElement("wbr"), part]));
  }
}

document.querySelectorAll("article td:first-child, article td > a").forEach(allowBreaks);

for (const table of document.querySelectorAll("article table")) {
  if (!table.tHead || table.tBodies[0].rows.length < FEWEST_ROWS) continue;
  addFilter(table);
  [...table.tHead.rows[0].cells].forEach((heading, i) => addButton(table, heading, i));
}
