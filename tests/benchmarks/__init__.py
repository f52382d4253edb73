"""The parts of the benchmarks that decide what a figure is."""
