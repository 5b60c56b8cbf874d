"""The families of libraries: one module, one environment and one file of results each."""
