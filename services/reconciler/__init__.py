"""The reconciler room: asks providers what became of paid jobs, and believes only them."""
