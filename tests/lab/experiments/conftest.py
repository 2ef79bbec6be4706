import os

if "OMP_NUM_THREADS" in os.environ:  # experiments, which would use every core, keep to the threads of the tests as well
    os.environ.setdefault("LOKY_MAX_CPU_COUNT", os.environ["OMP_NUM_THREADS"])
