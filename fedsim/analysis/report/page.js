"use strict";
// Plots: each <script class="spec"> has one as JSON, drawn into the element before it.
for (const spec of document.querySelectorAll("script.spec")) {
  const { data, layout } = JSON.parse(spec.textContent);
  Plotly.newPlot(spec.previousElementSibling, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
}
// Tables: a click on a column's head sorts by it, numerically where possible; a second click reverses the order.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [value(a), value(b)], [p, q] = [Number(x), Number(y)];
        if (x === "" || y === "") return (x === "") - (y === ""); // unknown values come last
        const order = Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y) : p - q;
        return up ? order : -order;
      };
      body.append(...[...body.rows].sort(compare));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}
