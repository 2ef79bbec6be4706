"""Steps and runs on a mesh with explicit axes, the default of `jax.make_mesh`, against those on one device.

A program, since the number of devices is chosen when JAX starts.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import npgm.jax
import npgm.optax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
jax.config.update(
    "jax_cpu_enable_async_dispatch", False
)  # two programs with collectives would wait for each other's threads

OPTIMIZERS = {
    "isotropic": npgm.optax.ihgd(0.1, 0.9, weight_decay=0.1),
    "isotropic, auto": npgm.optax.ngd(0.1, 0.9, scale="auto", momentum_order="before"),
    "separable, auto": npgm.optax.sngd(0.1, scale="auto"),
    "spectral, auto": npgm.optax.npgm(0.1, 0.9, "spectral-sqrt", scale="auto", nesterov=True, adjust="rms"),
}


def main():
    mesh = jax.make_mesh((2, 2), ("a", "b"))
    jax.set_mesh(mesh)
    rng = np.random.default_rng(0)
    arrays = {"matrix": rng.standard_normal((4, 6)), "vector": rng.standard_normal(8), "number": np.array(2.0)}
    specs = {"matrix": PartitionSpec("a", "b"), "vector": PartitionSpec("a"), "number": PartitionSpec()}
    plain = jax.tree.map(jnp.asarray, arrays)
    sharded = {name: jax.device_put(x, NamedSharding(mesh, specs[name])) for name, x in arrays.items()}

    for name, optimizer in OPTIMIZERS.items():
        init, update = jax.jit(optimizer.init), jax.jit(optimizer.update)
        states = [init(params) for params in (plain, sharded)]
        for _ in range(2):
            want, states[0] = update(plain, states[0], plain)
            got, states[1] = update(sharded, states[1], sharded)
        for key in arrays:
            np.testing.assert_allclose(np.asarray(got[key]), np.asarray(want[key]), rtol=1e-10, err_msg=name)
            assert got[key].sharding.spec == sharded[key].sharding.spec, (name, key)

    def fun(x):
        return sum(jnp.sum((leaf - 1.0) ** 4 / 4 + leaf**2) for leaf in jax.tree.leaves(x))

    for start, options in (("matrix", {}), ("vector", {"lr": 0.1, "momentum": 0.5}), ("vector", {"method": "adgd"})):
        want, got = (npgm.jax.minimize(fun, x[start], **options) for x in (plain, sharded))
        assert got.success, options
        np.testing.assert_allclose(np.asarray(got.x), np.asarray(want.x), rtol=1e-6, atol=1e-6)
        assert got.x.sharding.spec == sharded[start].sharding.spec, options


if __name__ == "__main__":
    main()
