"""The rooms. Each is a process of its own; none imports another."""
