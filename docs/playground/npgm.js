// The mathematics of the playground. `tests/lab/test_playground.py` compares it with the package in a browser.
"use strict";

const npgm = (() => {
  // h*' of each kernel, by its key in npgm.kernels.registry
  const kernels = {
    cosh: Math.asinh,
    exp: (y) => Math.sign(y) * Math.log1p(Math.abs(y)),
    log: (y) => y / (1 + Math.abs(y)),
    sqrt: (y) => y / Math.hypot(1, y),
    logx2: (y) => y / (1 + Math.hypot(1, y)),
    artanh: Math.tanh,
    lncos: Math.atan,
    huber: (y) => Math.min(Math.max(y, -1), 1),
    mix3: (y) => (2 * y) / (1 + Math.sqrt(1 + 4 * Math.abs(y))),
    quad: (y) => y,
  };

  // ∇φ*(g) of φ = λ h(‖·‖) or λ Σ h, for g of two entries
  function precondition({ lift, kernel, scale }, g) {
    const h = kernels[kernel];
    if (lift === "separable") return g.map((gi) => h(gi / scale));
    const norm = Math.hypot(...g);
    return norm === 0 ? [0, 0] : g.map((gi) => (h(norm / scale) * gi) / norm);
  }

  // f with its gradient, the part of the plane to show, where to start, and numbers to begin with
  const functions = {
    "factorisation": {
      formula: "½(uv − 1)²",
      f: ([u, v]) => 0.5 * (u * v - 1) ** 2,
      grad: ([u, v]) => [(u * v - 1) * v, (u * v - 1) * u],
      view: [-4, 4, -3, 3], start: [3.5, 2.5], lr: 0.1, scale: 1, momentum: 0.5,
    },
    "Rosenbrock": {
      formula: "(1 − x)² + 100(y − x²)²",
      f: ([x, y]) => (1 - x) ** 2 + 100 * (y - x * x) ** 2,
      grad: ([x, y]) => [-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)],
      view: [-2, 2, -1, 3], start: [-1.5, 2.5], lr: 0.03, scale: 10, momentum: 0.9,
    },
    "exponentials": {
      formula: "exp(x²) + exp(y²)",
      f: ([x, y]) => Math.exp(x * x) + Math.exp(y * y),
      grad: ([x, y]) => [2 * x * Math.exp(x * x), 2 * y * Math.exp(y * y)],
      view: [-2.4, 2.4, -1.8, 1.8], start: [2.1, 0.9], lr: 0.1, scale: 1, momentum: 0,
    },
    "double well": {
      formula: "¼(x² − 1)² + ½y²",
      f: ([x, y]) => 0.25 * (x * x - 1) ** 2 + 0.5 * y * y,
      grad: ([x, y]) => [x * (x * x - 1), y],
      view: [-3.2, 3.2, -2.4, 2.4], start: [2.8, 1.8], lr: 0.3, scale: 1, momentum: 0.5,
    },
  };

  // Algorithm 1: m ← β m + (1-β) ∇φ*(∇f(x)), x ← x - γ m; it ends where a number is no longer finite
  function run({ grad }, reference, { start, lr, momentum, steps }) {
    let x = start, m = [0, 0];
    const points = [x], norms = [Math.hypot(...grad(x))];
    for (let k = 0; k < steps; k++) {
      const u = precondition(reference, grad(x));
      m = m.map((mi, i) => momentum * mi + (1 - momentum) * u[i]);
      x = x.map((xi, i) => xi - lr * m[i]);
      const norm = Math.hypot(...grad(x));
      if (!x.every(Number.isFinite) || !Number.isFinite(norm)) break;
      points.push(x);
      norms.push(norm);
    }
    return { points, norms };
  }

  return { kernels, precondition, functions, run };
})();
