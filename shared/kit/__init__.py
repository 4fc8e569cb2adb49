"""What every room stands on: settings, the runner, logs, metrics, the bus, outgoing HTTP."""
