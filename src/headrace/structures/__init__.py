"""Data structures that know nothing of commands: IDs, listpacks, radix trees, timer heaps, histograms."""
