"""Before any test module of this folder is imported: Keras, whoever imports it first, runs on JAX."""

import os

os.environ["KERAS_BACKEND"] = "jax"
