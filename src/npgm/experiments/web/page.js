// Adds to a report what a static page cannot have: charts to be explored, beside the figures, and tables to be sorted.
"use strict";

/** Distances between the ticks of an axis that counts. */
const COUNTS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap((power) => [power, 2 * power, 5 * power]);

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function text(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e5)) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace(/\.?0*e\+?/, "e");
}

/** A labelled choice among names: its node, and the select within; shown where there is something to choose. */
function choice(label, names, changed) {
  const select = element("select", { autocomplete: "off", onchange: changed }, ...names.map((name) => element("option", {}, name)));
  return { select, node: element("label", { hidden: names.length < 2 }, `${label} `, select) };
}

/** The chart of a JSON element as `chart.py` writes it. */
function explore(source) {
  const data = JSON.parse(source.textContent);
  const setting = choice("setting", data.settings.map((s) => s.name), draw);
  const quantity = choice("y", data.quantities.map((q) => q.label), () => { scale.select.selectedIndex = preferred(); draw(); });
  const clock = choice("x", data.clocks, draw);
  const scale = choice("y scale", ["logarithmic", "linear"], draw);
  const preferred = () => (data.quantities[quantity.select.selectedIndex].log ? 0 : 1);
  scale.select.selectedIndex = preferred();

  const methods = data.methods.map(({ label, color }) => {
    const box = element("input", { type: "checkbox", autocomplete: "off", checked: true, onchange: draw });
    const value = element("output");
    const line = element("span", { className: "line" });
    line.style.background = color;
    return { box, value, color, node: element("label", {}, box, line, `${label} `, value) };
  });
  const plot = element("div", { className: "plot", role: "img", ariaLabel: data.hint });
  const where = element("output", { className: "where" });
  const section = element("section", { className: "chart", ariaLabel: "Chart to explore" },
    element("div", { className: "controls" }, ...[setting, quantity, clock, scale].map((c) => c.node)),
    plot,
    element("div", { className: "methods" }, ...methods.map((m) => m.node)),
    element("p", { className: "hint" }, `${data.hint} Drag to zoom, double-click to reset. `, where));
  source.after(section);

  function draw() {
    const { curves } = data.settings[setting.select.selectedIndex];
    const { label, key } = data.quantities[quantity.select.selectedIndex];
    const name = data.clocks[clock.select.selectedIndex];
    const logarithmic = scale.select.selectedIndex === 0;
    const series = [{}], bands = [];
    methods.forEach(({ box, color }, i) => {
      const edge = { show: box.checked, stroke: "transparent", points: { show: false } };
      series.push({ show: box.checked, stroke: color, width: 2 }, edge, edge);
      bands.push({ series: [3 * i + 3, 3 * i + 2], fill: `${color}33` });
    });
    section.chart?.destroy();
    section.chart = new uPlot({
      width: plot.clientWidth, height: 380, series, bands,
      legend: { show: false },
      scales: { x: { time: false }, y: { distr: logarithmic ? 3 : 1 } },
      axes: [{ label: name, ...(name === "seconds" ? {} : { incrs: COUNTS }) }, { label, size: 70, values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : text(tick))) }],
      cursor: { dataIdx: nearest, points: { size: (_, i) => (i % 3 === 1 ? 8 : 0) } },
      hooks: { setCursor: [read] },
    }, uPlot.join(curves.map((curve) => [curve[name], ...curve[key]])), plot);
    read(section.chart);
  }

  /** Methods have clocks of their own: the nearest of a method's points is the one to read. */
  function nearest(chart, i, at) {
    const values = chart.data[i];
    for (let d = 0; d < values.length; d++) {
      if (values[at - d] != null) return at - d;
      if (values[at + d] != null) return at + d;
    }
    return at;
  }

  function read(chart) {
    const { idx, idxs } = chart.cursor;
    const over = idx != null;
    where.value = over ? `${data.clocks[clock.select.selectedIndex]} ${text(chart.data[0][idx])}` : "";
    methods.forEach(({ value, box }, i) => {
      const [middle, low, high] = [1, 2, 3].map((j) => chart.data[3 * i + j]?.[idxs?.[3 * i + 1]]);
      value.value = !over || !box.checked ? "" : low === high ? text(middle) : `${text(middle)} [${text(low)}, ${text(high)}]`;
    });
  }

  draw();
  new ResizeObserver(() => section.chart.setSize({ width: plot.clientWidth, height: 380 })).observe(plot);
}

/** Lets a click on a heading sort the rows, by numbers where a column has them; what is missing comes last. */
function sortable(table) {
  const [body] = table.tBodies;
  const column = (i) => [...body.rows].map((row) => row.cells[i].textContent.trim());
  [...table.tHead.rows[0].cells].forEach((heading, i) => {
    const button = element("button", { type: "button" }, ...heading.childNodes);
    heading.append(button);
    button.onclick = () => {
      const descending = heading.ariaSort === "ascending";
      for (const cell of table.tHead.rows[0].cells) cell.ariaSort = null;
      heading.ariaSort = descending ? "descending" : "ascending";
      const missing = (content) => content === "" || content === "–";
      const numeric = column(i).every((content) => missing(content) || !Number.isNaN(parseFloat(content)));
      const order = numeric
        ? (a, b) => parseFloat(a) - parseFloat(b)
        : (a, b) => a.localeCompare(b, "en", { numeric: true });
      const key = (row) => row.cells[i].textContent.trim();
      body.append(...[...body.rows].sort((a, b) =>
        missing(key(a)) - missing(key(b)) || (descending ? -1 : 1) * order(key(a), key(b))));
    };
  });
}

document.querySelectorAll("script.chart").forEach(explore);
document.querySelectorAll("table").forEach(sortable);
