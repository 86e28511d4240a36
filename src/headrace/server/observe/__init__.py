"""What operators see: metrics, logs, systemd notification, figures of memory."""
