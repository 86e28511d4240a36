"""Headrace beside redis-server: the same load, alternating, in one run; ratios, not absolute figures."""
