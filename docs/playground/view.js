// What the playground shows: level lines with trajectories, ∇φ* as a curve, and ‖∇f‖ against iterations.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const root = document.getElementById("npgm-playground");
  if (!root) return;
  const $ = (name) => root.querySelector(`[name="${name}"]`);
  const canvas = root.querySelector("canvas");
  const status = root.querySelector("output[name=status]");
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"];
  const DASHES = [[], [9, 3], [9, 3, 2, 3], [3, 2], [12, 3]];
  const GRID = 140;
  let shown = 0, levels = null, charts = [], frame = 0, start = null;

  const css = (name) => getComputedStyle(document.body).getPropertyValue(name).trim() || "#888";
  const chosen = () => npgm.functions[$("function").value];
  const exponential = (name) => 10 ** Number($(name).value);
  const settings = () => ({
    start, lr: exponential("lr"), momentum: Number($("momentum").value), steps: Number($("steps").value),
  });

  // every method is Algorithm 1 with another φ
  function methods() {
    const scale = exponential("scale"), lift = $("lift").value, kernel = $("kernel").value;
    const all = [
      { label: `${lift} ${kernel}`, reference: { lift, kernel, scale }, always: true },
      { label: "gradient descent", reference: { lift: "isotropic", kernel: "quad", scale }, box: "gd" },
      { label: "clipping", reference: { lift: "isotropic", kernel: "huber", scale }, box: "clipping" },
      { label: "iHGD", reference: { lift: "isotropic", kernel: "cosh", scale }, box: "ihgd" },
      { label: "NGD", reference: { lift: "isotropic", kernel: "log", scale }, box: "ngd" },
    ].map((method, i) => ({ ...method, color: COLORS[i], dash: DASHES[i] }));
    return all.filter((method) => method.always || $(method.box).checked);
  }

  function contours(problem, width, height) {
    const [left, right, low, high] = problem.view, rows = GRID, columns = GRID;
    const value = (i, j) =>
      problem.f([left + ((right - left) * i) / columns, high - ((high - low) * j) / rows]);
    const values = Array.from({ length: rows + 1 }, (_, j) => Array.from({ length: columns + 1 }, (_, i) => value(i, j)));
    const flat = values.flat(), least = Math.min(...flat), logs = flat.map((v) => Math.log(v - least + 1e-3));
    const bottom = Math.min(...logs), top = Math.max(...logs);
    const path = new Path2D();
    for (let n = 5; n < 18; n++) {  // below, valleys are narrower than the grid
      const level = Math.exp(bottom + ((top - bottom) * n) / 18) + least - 1e-3;
      for (let j = 0; j < rows; j++)
        for (let i = 0; i < columns; i++) {
          const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]];
          const crossings = [];
          corners.forEach(([a, b], e) => {
            const [c, d] = corners[(e + 1) % 4], p = values[b][a] - level, q = values[d][c] - level;
            if (p * q < 0) {
              const t = p / (p - q);
              crossings.push([((a + t * (c - a)) * width) / columns, ((b + t * (d - b)) * height) / rows]);
            }
          });
          for (let e = 0; e + 1 < crossings.length; e += 2) {
            path.moveTo(...crossings[e]);
            path.lineTo(...crossings[e + 1]);
          }
        }
    }
    return path;
  }

  function draw(runs) {
    const problem = chosen(), [left, right, low, high] = problem.view, ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = (width * 3) / 4;
    if (canvas.width !== Math.round(width * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      levels = null;
    }
    levels ??= contours(problem, width, height);
    const at = ([x, y]) => [((x - left) / (right - left)) * width, ((high - y) / (high - low)) * height];
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.lineWidth = 1;
    pen.strokeStyle = css("--md-default-fg-color--lighter");
    pen.stroke(levels);
    pen.lineWidth = 2;
    for (const { points, method } of runs) {
      pen.strokeStyle = pen.fillStyle = method.color;
      pen.setLineDash(method.dash);
      pen.beginPath();
      const visible = points.slice(0, shown + 1).map(at);
      visible.forEach((p, k) => (k ? pen.lineTo(...p) : pen.moveTo(...p)));
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.arc(...visible.at(-1), 4, 0, 7);
      pen.fill();
    }
    pen.strokeStyle = css("--md-default-fg-color");
    pen.beginPath();
    pen.arc(...at(start), 6, 0, 7);
    pen.stroke();
  }

  function chart(place, data, series, x, y, log) {
    const text = css("--md-default-fg-color"), faint = css("--md-default-fg-color--lightest");
    const axis = (label) => ({ label, stroke: text, grid: { stroke: faint }, ticks: { stroke: faint }, labelSize: 20 });
    const element = root.querySelector(place);
    element.replaceChildren();
    return new uPlot({
      width: element.clientWidth, height: 240,
      cursor: { show: false }, legend: { live: false },
      scales: { x: { time: false }, y: log ? { distr: 3 } : {} },
      axes: [axis(x), { ...axis(y), size: 56, ...(log && { values: (_, ticks) => ticks.map((v) => (v === null || Math.log10(v) % 1 ? null : v.toExponential(0))), grid: { show: false } }) }],
      series: [{ label: x }, ...series.map((m) => ({ label: m.label, stroke: m.color, dash: m.dash, width: 2, points: { show: false } }))],
    }, data, element);
  }

  function update() {
    cancelAnimationFrame(frame);
    for (const name of ["lr", "scale"]) root.querySelector(`output[name=${name}-value]`).textContent = exponential(name).toPrecision(2);
    root.querySelector("output[name=momentum-value]").textContent = Number($("momentum").value).toFixed(2);
    root.querySelector("output[name=formula]").textContent = chosen().formula;
    const runs = methods().map((method) => ({ method, ...npgm.run(chosen(), method.reference, settings()) }));
    const series = runs.map(({ method }) => method);
    const lengths = Array.from({ length: 201 }, (_, i) => i / 20), { scale } = runs[0].method.reference;
    const most = Math.max(...runs.map(({ norms }) => norms.length));
    charts.forEach((c) => c.destroy());
    charts = [
      chart(".curve", [lengths, ...series.map(({ reference }) => lengths.map((r) => npgm.kernels[reference.kernel](r)))], series, "‖∇f‖/λ", "‖∇φ*(∇f)‖", false),
      chart(".norms", [Array.from({ length: most }, (_, k) => k), ...runs.map(({ norms }) => Array.from({ length: most }, (_, k) => (norms[k] > 0 ? norms[k] : null)))], series, "iteration", "‖∇f‖", true),
    ];
    const left = runs.filter(({ points }) => points.length <= settings().steps).map(({ method }) => method.label);
    status.textContent = runs.map(({ method, norms }) => `${method.label}: ‖∇f‖ = ${norms.at(-1).toPrecision(2)} after ${norms.length - 1} steps`).join(" · ") + (left.length ? ` · diverged: ${left.join(", ")}` : "");
    shown = reduced.matches ? most : 0;
    const speed = Math.max(1, most / 180);
    const animate = () => {
      draw(runs);
      if (shown < most) {
        shown = Math.min(most, shown + speed);
        frame = requestAnimationFrame(animate);
      }
    };
    animate();
  }

  function moveTo(event) {
    const box = canvas.getBoundingClientRect(), [left, right, low, high] = chosen().view;
    start = [left + ((event.clientX - box.left) / box.width) * (right - left), high - ((event.clientY - box.top) / box.height) * (high - low)];
    update();
  }

  function choose() {
    const problem = chosen();
    start = problem.start;
    levels = null;
    $("lr").value = Math.log10(problem.lr);
    $("scale").value = Math.log10(problem.scale);
    $("momentum").value = problem.momentum;
    update();
  }

  $("function").append(...Object.keys(npgm.functions).map((name) => new Option(name)));
  $("kernel").append(...Object.keys(npgm.kernels).map((name) => new Option(name)));
  root.addEventListener("input", (event) => (event.target.name === "function" ? choose() : update()));
  $("again").addEventListener("click", update);
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); moveTo(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) moveTo(event); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [left, right, low, high] = chosen().view;
    start = [start[0] + (step[0] * (right - left)) / 50, start[1] + (step[1] * (high - low)) / 50];
    update();
  });
  new MutationObserver(update).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
  let width = 0;
  new ResizeObserver(() => { if (width !== root.clientWidth) { width = root.clientWidth; update(); } }).observe(root);
  choose();
});
