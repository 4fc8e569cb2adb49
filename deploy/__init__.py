"""What runs Coatcheck: the local stack of real parts, images and the watchers' files."""
