"""Keras's own optimizer tests with `npgm.keras` in the place of SGD, of which it is an instance; and what is ours alone.

A program, since the backend is chosen when Keras is imported: ``KERAS_BACKEND=jax python tests/support/keras_suite.py``.
"""

from __future__ import annotations

import sys
import tempfile
import unittest

import keras
import numpy as np
import pytest
from keras.src import optimizers
from keras.src.optimizers import loss_scale_optimizer_test, optimizer_test, sgd_test

import npgm
from npgm.keras import IHGD, NGD, NPGM, SHGD, SNGD

WITHOUT = {  # of Keras's tests, with the reason
    "test_config": "compares the arguments of SGD",
    "test_get_method": "looks up Keras's own names",
    "test_optimizer_auto_naming": "compares the name of the class",
    "test_invalid_momentum": "expects the words of SGD's error",
    "test_mixed_with_tf_variables": "needs TensorFlow",
    "test_tf_checkpointing": "needs TensorFlow",
}


@keras.saving.register_keras_serializable("npgm-tests")
class SGD(NPGM):
    """Plain gradient descent as `NPGM` has it, with SGD's defaults."""

    def __init__(self, learning_rate=0.01, momentum=0.0, nesterov=False, reference="isotropic-quad", **options):
        options.pop("lr_like", None)
        if nesterov:
            raise unittest.SkipTest("there is no Nesterov form")
        super().__init__(learning_rate, momentum, reference, lr_like="sgd", **options)


class OursAlone(unittest.TestCase):
    def test_steps_are_those_of_the_definition(self):
        rng = np.random.default_rng(0)
        start = [rng.standard_normal(shape) for shape in [(3, 4), (5,), ()]]
        for cls in (IHGD, SHGD, NGD, SNGD):
            phi = npgm.reference(cls.lift_and_kernel, scale=0.5)
            optimizer = cls(0.1, momentum=0.9, scale=0.5, weight_decay=0.01)
            variables = [keras.Variable(x, dtype="float64") for x in start]
            x, m = np.concatenate([x.ravel() for x in start]), 0.0
            for _ in range(5):
                grads = [rng.standard_normal(v.shape) * 10.0 for v in variables]
                optimizer.apply([keras.ops.convert_to_tensor(g, "float64") for g in grads], variables)
                x = x - 0.1 * 0.01 * x
                m = 0.9 * m + 0.1 * phi.precondition(np.concatenate([g.ravel() for g in grads]))
                x = x - 0.1 * m
            joined = np.concatenate([keras.ops.convert_to_numpy(v).ravel() for v in variables])
            np.testing.assert_allclose(joined, x, rtol=1e-6)  # the learning rate is a float32

    def test_the_norm_of_all_neither_overflows_nor_hides(self):
        for size in (1e-30, 1e30):
            variables = [keras.Variable(np.zeros(2), dtype="float32") for _ in range(2)]
            grads = [np.zeros(2), np.array([3.0, 4.0]) * size]
            NGD(1.0, scale=1e-36).apply([keras.ops.convert_to_tensor(g, "float32") for g in grads], variables)
            np.testing.assert_allclose(keras.ops.convert_to_numpy(variables[1]), [-0.6, -0.8], rtol=1e-5)

    def test_a_model_trains_is_saved_and_goes_on(self):
        keras.utils.set_random_seed(0)
        x = np.random.default_rng(0).standard_normal((64, 4)).astype("float32")
        y = x.sum(1, keepdims=True)
        model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
        schedule = keras.optimizers.schedules.CosineDecay(0.5, 100)
        model.compile(IHGD(schedule, momentum=0.5, scale=0.3), "mse")
        first, *_, last = model.fit(x, y, epochs=5, verbose=0, shuffle=False).history["loss"]
        assert last < 0.5 * first
        with tempfile.NamedTemporaryFile(suffix=".keras") as file:
            model.save(file.name)
            restored = keras.saving.load_model(file.name)
        assert isinstance(restored.optimizer, IHGD)
        assert restored.optimizer.phi == model.optimizer.phi == npgm.reference("isotropic-cosh", scale=0.3)
        for trained in (model, restored):
            trained.fit(x, y, epochs=1, verbose=0, shuffle=False)
        np.testing.assert_allclose(restored.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-4, atol=1e-5)

    def test_bad_arguments_are_named(self):
        with pytest.raises(ValueError, match=r"momentum must lie in \[0, 1\), not 1.5"):
            NGD(0.1, momentum=1.5)
        with pytest.raises(ValueError, match="isotropic or separable reference function"):
            NPGM(0.1, reference="spectral-cosh")
        with pytest.raises(ValueError, match="unknown lr_like 'SGD'"):
            NGD(0.1, lr_like="SGD")


def _is_of_ours(test):
    name, _, of = test.id().split(".")[-1].partition(" (")
    return name not in WITHOUT and of in ("", "'sgd')")  # and not of another one of Keras's optimizers


def main():
    optimizers.SGD = keras.optimizers.SGD = SGD
    loader, suite = unittest.defaultTestLoader, unittest.TestSuite()
    modules = [optimizer_test, sgd_test, loss_scale_optimizer_test]
    for module in modules[: 3 if keras.backend.backend() == "torch" else 1]:  # JAX compiles every operation
        module.SGD = SGD
        suite.addTests(loader.loadTestsFromModule(module))
    suite.addTests(loader.loadTestsFromTestCase(OursAlone))

    def without(tests):
        for test in tests:
            if isinstance(test, unittest.TestSuite):
                yield from without(test)
            elif _is_of_ours(test):
                yield test

    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(unittest.TestSuite(without(suite)))
    sys.exit(not (result.wasSuccessful() and result.testsRun > 20))


if __name__ == "__main__":
    main()
