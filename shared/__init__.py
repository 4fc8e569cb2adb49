"""What the rooms share, in layers: providers and media over store over kit over domain."""
