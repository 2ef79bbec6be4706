"""Break lines of the package one by one, and see whether the tests beside them notice: `python tests/support/mutants.py`.

Each mutant is a file, a line of it (or a part that occurs once), what stands in its place, and the tests that must fail. The
file is put back in any case, and C++ compiled anew; begin with a clean working tree. Numbers choose some of them: `python tests/support/mutants.py 0 3`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

MUTANTS = [
    ("kernels/exponential.py", "return xp.log1p(a)", "return a * xp.log1p(a)", "contract/test_kernels.py"),
    ("kernels/bounded.py", "return y / (1.0 + xp.abs(y))", "return y / (1.001 + xp.abs(y))", "contract/test_kernels.py"),
    ("kernels/bounded.py", "return y / hypot1(xp, y)", "return y / hypot1(xp, y) ** 1.0001", "contract/test_kernels.py"),
    ("references/isotropic.py", "difference = radial - tangential", "difference = tangential - radial", "contract/test_references.py"),
    ("references/isotropic.py", "along = xp.sum(direction * v, axis=axis, keepdims=True)", "along = xp.sum(direction * v, keepdims=True)", "contract/test_references.py"),
    ("torch/paths/single.py", "y = y.add(parameter, alpha=rule.coupled_decay)", "y = y.sub(parameter, alpha=rule.coupled_decay)", "contract/test_torch_optimizers.py"),
    ("torch/paths/single.py", "y = -y", "pass", "contract/test_torch_optimizers.py"),
    ("torch/paths/single.py", "left = 1.0 - lr * rule.decoupled_decay", "left = 1.0 + lr * rule.decoupled_decay", "contract/test_torch_optimizers.py"),
    ("torch/batch.py", "value = 1.0 - self.options.momentum", "value = self.options.momentum", "contract/test_torch_optimizers.py"),
    ("torch/options.py", "maximize=self.maximize,", "maximize=False,", "contract/test_torch_optimizers.py"),
    ("theory/bounds/deterministic.py", "coefficient = (beta if tight else 1.0) / (1.0 - beta)", "coefficient = beta / (1.0 - beta) ** 2", "theory/test_bounds.py"),
    ("_common/optimizers.py", "outlier * _mean", "1e30 * _mean", "optax/test_auto_scale.py"),
    ("_common/optimizers.py", "xp.hypot(decay**0.5 * rms", "xp.hypot(decay * rms", "optax/test_auto_scale.py"),
    ("_common/optimizers.py", "xp.minimum(size, outlier * _mean(xp, rms, weight))", "size", "torch/test_auto_scale.py"),
    ("_common/optimizers.py", "(size > 0) & xp.isfinite(size)", "xp.isfinite(size)", "torch/test_auto_scale.py"),
    ("torch/spectral/by_products.py", "2.0 * _solve_shifted(t @ t.mT, t)", "1.999 * _solve_shifted(t @ t.mT, t)", "torch/test_spectral.py"),
    ("solvers/heavy_ball.py", "m += (1.0 - momentum) * u", "m += u", "solvers/test_methods.py"),
    ("solvers/stepsizes/backtracking.py", "trial.direction + trial.step / lr", "trial.direction - trial.step / lr", "solvers/test_stepsizes.py"),
    ("solvers/stepsizes/backtracking.py", "momentum * (state.lr / state.last_lr)", "momentum", "solvers/test_stepsizes.py"),
    ("solvers/stepsizes/edge_of_stability.py", "kept * state.curvature)", "state.curvature)", "solvers/test_stepsizes.py"),
    ("solvers/stepsizes/edge_of_stability.py", "2.0 * lr)\n", "4.0 * lr)\n", "solvers/test_stepsizes.py"),
    ("solvers/methods/proximal.py", "+ before - after - rounding", "+ before - rounding", "solvers/test_proximal.py"),
    ("_native/piecewise.hpp", "std::is_same_v<S, float> ? 5", "std::is_same_v<S, float> ? 4", "native/test_native.py"),
    ("_native/maps.hpp", "if (second != T(1)) return Range::any;", "", "native/test_native.py"),
    ("_native/registers.hpp", "_mm512_adds_epu16", "_mm512_add_epi16", "native/test_native.py"),
    ("_native/loops.cpp", "move(move(i, stop, near), stop, any)", "move(i, stop, near)", "native/test_native.py"),
    ("_native/loops.cpp", "next = madd(weight, value - mean, mean)", "next = madd(weight, value, mean)", "native/test_native.py"),
    ("_native/loops.cpp", "second.coupled_decay = 0.0;", "", "torch/test_fused.py"),
    ("_native/stepper.cpp", "lr[run].update(half_ratio(dx, dgradient), 0.5)", "lr[run].update(half_ratio(dx, dgradient), 1.0)", "solvers/test_native.py"),
    ("_native/stepper.cpp", "T(nu * clip(norm", "T(clip(norm", "solvers/test_native.py"),
]  # fmt: skip

INSTALL = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable"]


def survives(file: str, line: str, instead: str, tests: str) -> bool:
    path = ROOT / "src" / "npgm" / file
    text = path.read_text(encoding="utf-8")
    if line not in text:
        raise SystemExit(f"{file} has no {line!r} any more; bring the table up to date")
    try:
        write(path, text.replace(line, instead, 1))
        return passes(tests)
    finally:
        write(path, text)


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    if path.suffix in (".cpp", ".hpp"):
        subprocess.run([*INSTALL, str(ROOT)], check=True)


def passes(tests: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--randomly-seed=0", f"tests/{tests}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def main(numbers: list[int]) -> int:
    for tests in sorted({MUTANTS[i][3] for i in numbers}):
        if not passes(tests):
            raise SystemExit(f"tests/{tests} fail without a mutant")
    alive = 0
    for i in numbers:
        survived = survives(*MUTANTS[i])
        alive += survived
        print(f"{i:2} {'SURVIVES' if survived else 'dies':8} {MUTANTS[i][0]}: {MUTANTS[i][2].strip()}", flush=True)
    print(f"{alive} of {len(numbers)} survive")
    return alive


if __name__ == "__main__":
    sys.exit(main([int(number) for number in sys.argv[1:]] or list(range(len(MUTANTS)))))
