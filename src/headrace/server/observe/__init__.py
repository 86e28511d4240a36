"""What operators see: metrics, logs, systemd notification, memory statistics."""
