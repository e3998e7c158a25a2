"""Pure functions that turn the numbers of a study into means, differences and a recommendation."""
