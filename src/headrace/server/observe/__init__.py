"""Observability: metrics, logs, systemd notification, memory statistics."""
